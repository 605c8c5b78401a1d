//! Rate of durable 4 KiB writes to the disk: `bench-catalog sync DIRECTORY SECONDS`.

use std::env;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The 4096 bytes that each write appends.
const APPENDED: [u8; 4096] = [b'x'; 4096];

pub fn run() -> Result<(), String> {
    let mut arguments = env::args().skip(2);
    let directory = PathBuf::from(arguments.next().ok_or("no directory")?);
    let seconds: u64 = arguments.next().and_then(|it| it.parse().ok()).ok_or("no seconds")?;
    let path = directory.join("sync");
    let mut file = File::create(&path).map_err(|error| error.to_string())?;
    let (start, mut count) = (Instant::now(), 0_u64);
    while start.elapsed() < Duration::from_secs(seconds) {
        file.write_all(&APPENDED).and_then(|()| file.sync_data()).map_err(|it| it.to_string())?;
        count += 1;
    }
    println!("{{\"per_second\":{:.1}}}", count as f64 / start.elapsed().as_secs_f64());
    fs::remove_file(path).map_err(|error| error.to_string())
}
