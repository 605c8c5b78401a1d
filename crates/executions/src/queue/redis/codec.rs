//! Arguments and replies of the scripts.

use api::{ExecutionId, ExecutionState};
use redis::Value;

use super::super::{QueueError, QueuedJob};
use super::link::LinkError;

/// The options of `moveToActive`.
pub(super) fn active_options(lock: &str, lock_ms: u64) -> Result<Vec<u8>, QueueError> {
    let mut pack = MessagePack::map(2)?;
    pack.text("token")?.text(lock)?.text("lockDuration")?.number(lock_ms)?;
    Ok(pack.0)
}

/// Returns the options of `moveToFinished`: everything is kept, and sweeps remove it.
pub(super) fn finished_options(
    lock: &str,
    lock_ms: u64,
    attempts: u32,
) -> Result<Vec<u8>, QueueError> {
    let mut pack = MessagePack::map(9)?;
    pack.text("token")?.text(lock)?.text("lockDuration")?.number(lock_ms)?;
    pack.text("attempts")?.number(u64::from(attempts))?.text("maxMetricsSize")?.text("")?;
    pack.text("keepJobs")?.open(1)?.text("count")?.all()?;
    for what_of_the_parent in ["fpof", "cpof", "idof", "rdof"] {
        pack.text(what_of_the_parent)?.no()?;
    }
    Ok(pack.0)
}

/// Encoder of MessagePack.
struct MessagePack(Vec<u8>);

impl MessagePack {
    fn map(len: u32) -> Result<MessagePack, QueueError> {
        let mut pack = MessagePack(Vec::with_capacity(160));
        pack.open(len)?;
        Ok(pack)
    }

    fn open(&mut self, len: u32) -> Result<&mut MessagePack, QueueError> {
        rmp::encode::write_map_len(&mut self.0, len).map_err(super::link::unavailable)?;
        Ok(self)
    }

    fn text(&mut self, text: &str) -> Result<&mut MessagePack, QueueError> {
        rmp::encode::write_str(&mut self.0, text).map_err(super::link::unavailable)?;
        Ok(self)
    }

    fn number(&mut self, number: u64) -> Result<&mut MessagePack, QueueError> {
        rmp::encode::write_uint(&mut self.0, number).map_err(super::link::unavailable)?;
        Ok(self)
    }

    /// Adds BullMQ's number for "all".
    fn all(&mut self) -> Result<&mut MessagePack, QueueError> {
        rmp::encode::write_sint(&mut self.0, -1).map_err(super::link::unavailable)?;
        Ok(self)
    }

    fn no(&mut self) -> Result<&mut MessagePack, QueueError> {
        rmp::encode::write_bool(&mut self.0, false).map_err(super::link::unavailable)?;
        Ok(self)
    }
}

/// An answer, read from its beginning.
#[derive(Debug)]
pub(super) struct RedisReply(std::vec::IntoIter<Value>);

impl RedisReply {
    /// Reads a list; a single value is a list of one.
    pub(super) fn of(value: Value) -> RedisReply {
        match value {
            Value::Array(values) => RedisReply(values.into_iter()),
            Value::Nil => RedisReply(Vec::new().into_iter()),
            value => RedisReply(vec![value].into_iter()),
        }
    }

    /// Returns whether no values are left.
    pub(super) fn is_empty(&self) -> bool {
        self.0.as_slice().is_empty()
    }

    /// Returns the next value as bytes; `None` if there is none.
    pub(super) fn bytes(&mut self) -> Result<Option<Vec<u8>>, QueueError> {
        Ok(match self.0.next() {
            None | Some(Value::Nil) => None,
            Some(Value::BulkString(bytes)) => Some(bytes),
            Some(Value::SimpleString(text)) => Some(text.into_bytes()),
            Some(Value::Okay) => Some(b"OK".to_vec()),
            Some(Value::Int(number)) => Some(number.to_string().into_bytes()),
            Some(other) => return Err(LinkError::Answer(kind(&other)).into()),
        })
    }

    /// Returns the next value as text.
    pub(super) fn text(&mut self) -> Result<Option<String>, QueueError> {
        let text = self.bytes()?.map(String::from_utf8).transpose();
        text.map_err(|_| LinkError::Answer("not text".to_owned()).into())
    }

    /// Returns the next value, which must exist.
    pub(super) fn word(&mut self) -> Result<String, QueueError> {
        let text = self.text()?;
        text.ok_or_else(|| LinkError::Answer("nothing".to_owned()).into())
    }

    /// Returns the next value as a number.
    pub(super) fn number<T: std::str::FromStr>(&mut self) -> Result<Option<T>, QueueError> {
        let Some(text) = self.text()? else { return Ok(None) };
        let wrong = || QueueError::from(LinkError::Answer(format!("`{text}` is no number")));
        text.parse().map(Some).map_err(|_| wrong())
    }

    /// Returns the next value as a number; 0 if there is none.
    pub(super) fn count<T: std::str::FromStr + Default>(&mut self) -> Result<T, QueueError> {
        Ok(self.number()?.unwrap_or_default())
    }

    /// Returns the next value as a list.
    pub(super) fn list(&mut self) -> Option<RedisReply> {
        self.0.next().map(RedisReply::of)
    }

    /// Returns all remaining values, as text.
    pub(super) fn texts(mut self) -> Result<Vec<String>, QueueError> {
        let mut texts = Vec::new();
        while !self.is_empty() {
            texts.push(self.word()?);
        }
        Ok(texts)
    }
}

fn kind(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".to_owned(),
        _ => "of another kind".to_owned(),
    }
}

/// Parses a state by its name.
pub(super) fn state(name: &str) -> Result<ExecutionState, QueueError> {
    let all = [
        ExecutionState::Queued,
        ExecutionState::Running,
        ExecutionState::Finished,
        ExecutionState::Cancelled,
        ExecutionState::Expired,
        ExecutionState::Dead,
    ];
    let found = all.into_iter().find(|state| state.as_str() == name);
    found.ok_or_else(|| LinkError::Answer(format!("no state `{name}`")).into())
}

/// Decodes a job, as returned by `row` of `reads.lua`.
pub(super) fn job(mut row: RedisReply) -> Result<QueuedJob, QueueError> {
    let id = ExecutionId(row.word()?);
    let state = state(&row.word()?)?;
    Ok(QueuedJob {
        id,
        state,
        tenant: row.word()?,
        language: row.text()?.unwrap_or_default(),
        label: row.text()?,
        priority: row.count()?,
        created_ms: row.count()?,
        deadline_ms: row.number()?,
        started_ms: row.number()?,
        finished_ms: row.number()?,
        attempts: row.count()?,
        message: row.text()?,
        verdict: None,
        face: row.text()?,
        request: row.bytes()?,
        result: row.bytes()?,
    })
}
