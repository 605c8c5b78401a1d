//! A client of `PostgreSQL` or `MySQL` that sends statements, checks each answer and reports its
//! time.
//!
//! The same file runs in a sandbox and outside, so that only the path to the database differs. It
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

/// Longest wait for the server.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Reason for the end of a connection.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The server reports that it has no room for the connection.
    Refused(String),
    /// Any other reason: a closed connection, an error, a wrong answer.
    Wrong(String),
}

impl From<std::io::Error> for Broken {
    fn from(error: std::io::Error) -> Broken {
        Broken::Wrong(error.to_string())
    }
}

/// A connection that is logged in.
trait Talk {
    /// Sends the statement and compares the only value of the only row with the expected one.
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

/// Runs all connections of this process, each in its own thread.
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

/// Runs a kept connection: connects, waits for the others and for the start time, and sends
/// statements until its end.
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

/// Returns a time between zero and twice the mean, uniformly distributed, so that clients do not
/// synchronise.
fn thought(mean: Duration, random: &mut u64) -> Duration {
    // Knuth's constants of a linear congruential generator; its upper bits are uniform enough.
    *random =
        random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    mean * u32::try_from(*random >> 54).unwrap_or(0) / 512
}

/// Runs connections that send one statement and close, one after the other.
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
