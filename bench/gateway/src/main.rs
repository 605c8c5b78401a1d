//! A client of `PostgreSQL` or `MySQL` that asks, checks each answer and says how long it took.
//!
//! The same file runs in a sandbox and outside, so that what differs is the way to the database. It
//! needs no library and no file, and prints one JSON document; see `gateway/cases.py`.

mod figures;
mod mysql;
mod options;
mod postgres;

use std::net::TcpStream;
use std::process::ExitCode;
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use figures::Figures;
use options::{Options, Protocol};

/// Nobody answers any more.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Why a connection ends.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The server has no room for it, and says so.
    Refused(String),
    /// Anything else: it ends, it fails, it answers with something else.
    Wrong(String),
}

impl From<std::io::Error> for Broken {
    fn from(error: std::io::Error) -> Broken {
        Broken::Wrong(error.to_string())
    }
}

/// A connection that is logged in.
trait Talk {
    /// Asks, and compares the only value of the only row with what it has to be.
    fn ask(&mut self, statement: &str, expected: &str) -> Result<(), Broken>;
}

fn connect(options: &Options) -> Result<Box<dyn Talk>, Broken> {
    let stream = TcpStream::connect(&options.address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    Ok(match options.protocol {
        Protocol::Postgres => Box::new(postgres::Client::new(stream, options)?),
        Protocol::Mysql => Box::new(mysql::Client::new(stream, options)?),
    })
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match Options::parse(&words) {
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
        Ok(options) => {
            println!("{}", run(&options).document());
            ExitCode::SUCCESS
        }
    }
}

/// All connections of this process, each in a thread of its own.
fn run(options: &Options) -> Figures {
    let all = Mutex::new(Figures::default());
    let connected = Barrier::new(options.connections);
    let churning = Instant::now() + Duration::from_millis(options.milliseconds_left());
    thread::scope(|scope| {
        for number in 0..options.connections {
            let (all, connected) = (&all, &connected);
            scope.spawn(move || {
                let figures = one(options, number, connected);
                all.lock().unwrap_or_else(PoisonError::into_inner).add(figures);
            });
        }
        for _ in 0..options.churners {
            let all = &all;
            scope.spawn(move || {
                let figures = churn(options, churning);
                all.lock().unwrap_or_else(PoisonError::into_inner).add(figures);
            });
        }
    });
    all.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// One connection that is kept: connects, waits for the others and for the hour, and asks until its
/// end.
fn one(options: &Options, number: usize, connected: &Barrier) -> Figures {
    let mut figures = Figures::default();
    let value = (options.value + number).to_string();
    let statement = options.statement.replace('?', &value);
    let began = Instant::now();
    let talk = connect(options).inspect(|_| figures.connected(began.elapsed()));
    connected.wait();
    figures.is_late |= options.at.is_some_and(|at| SystemTime::now() > at);
    thread::sleep(Duration::from_millis(options.milliseconds_left()));
    let mut talk = match talk {
        Ok(talk) => talk,
        Err(why) => {
            figures.failed(why);
            return figures;
        }
    };
    let (mut random, start) = (options.value as u64 + number as u64 + 1, Instant::now());
    let mut asked = 0;
    while options.goes_on(asked, start.elapsed()) {
        if !options.think.is_zero() {
            thread::sleep(thought(options.think, &mut random));
            if !options.goes_on(asked, start.elapsed()) {
                break;
            }
        }
        let began = Instant::now();
        match talk.ask(&statement, &value) {
            Ok(()) => figures.answered(began.elapsed()),
            Err(why) => {
                figures.failed(why);
                break;
            }
        }
        asked += 1;
    }
    figures.took(start.elapsed());
    figures
}

/// Between nothing and twice the mean, evenly: no two clients keep step.
fn thought(mean: Duration, random: &mut u64) -> Duration {
    // Knuth's constants of a linear congruence; its upper bits are even enough.
    *random =
        random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    mean * u32::try_from(*random >> 54).unwrap_or(0) / 512
}

/// Connections that ask once and leave, one after the other.
fn churn(options: &Options, start: Instant) -> Figures {
    let mut figures = Figures::default();
    thread::sleep(start.saturating_duration_since(Instant::now()));
    let statement = options.statement.replace('?', "7");
    while start.elapsed() < options.seconds {
        let began = Instant::now();
        match connect(options).and_then(|mut talk| talk.ask(&statement, "7")) {
            Ok(()) => figures.connected(began.elapsed()),
            Err(why) => figures.failed(why),
        }
    }
    figures
}
