//! Parser of the lines that a context writes, all of which are hostile input.

use std::collections::BTreeMap;
use std::fmt;

use api::{CellFailure, CellResult};
use serde::de::{self, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Maximum bytes of one line. The drivers write no longer ones.
pub(super) const FRAME_BYTES_MAX: usize = 12 << 20;
/// Maximum bytes of a line that needs no share of the memory for long lines.
pub(super) const SMALL_FRAME_BYTES_MAX: usize = 64 << 10;
/// Bytes of buffer kept for the next line.
const KEPT_BYTES_MAX: usize = 256 << 10;
/// Maximum bytes of one JSON representation: decoded, it takes many times as much memory.
const JSON_BYTES_MAX: usize = 1 << 20;
/// Maximum number of representations of one result, and of omitted MIME types.
const REPRESENTATIONS_MAX: usize = 32;
/// Maximum bytes of a MIME type.
const MIME_BYTES_MAX: usize = 128;
/// MIME types whose value is JSON.
const JSON_TYPES: [&str; 3] = ["application/json", "e2b/data", "e2b/chart"];

/// Message of a context.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ContextFrame {
    /// Ready for the first cell, with its pid in the sandbox if it is a copy.
    Ready(Option<u32>),
    /// Failed to start, with the reason.
    Failed(String),
    /// The cell is running and can be interrupted by a signal.
    Running,
    /// A result of the cell.
    Result(CellResult),
    /// The cell has failed.
    Error(CellFailure),
    /// The context has copied itself.
    Forked,
    /// The cell has ended.
    Done(CellFigures),
}

/// Figures of a cell, as reported by the context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CellFigures {
    pub(super) has_failed: bool,
    pub(super) cpu_us: u64,
    pub(super) memory_bytes: u64,
}

/// Why a line violates the protocol.
#[derive(Debug, thiserror::Error)]
pub(super) enum ContextFrameError {
    #[error("a line of the context is longer than {FRAME_BYTES_MAX} bytes")]
    TooLong,
    #[error("a long line of the context did not end in time")]
    TooSlow,
    #[error("a line of the context is not of the protocol")]
    Malformed(#[source] serde_json::Error),
}

/// Splits the input into lines.
#[derive(Debug, Default)]
pub(super) struct FrameReader {
    pending: Vec<u8>,
    /// Bytes of `pending` that were searched and contain no line break.
    searched: usize,
}

impl FrameReader {
    /// Adds received bytes.
    ///
    /// # Errors
    /// If the line is too long; the stream is unusable then.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), ContextFrameError> {
        if self.pending.len().saturating_add(bytes.len()) > FRAME_BYTES_MAX {
            return Err(ContextFrameError::TooLong);
        }
        self.pending.extend_from_slice(bytes);
        Ok(())
    }

    /// Returns the number of received bytes that form no complete frame yet.
    pub(super) fn pending_bytes(&self) -> usize {
        self.pending.len()
    }

    /// Returns the next complete frame; none if more input is needed.
    ///
    /// # Errors
    /// If a line violates the protocol; the stream is unusable then.
    pub(super) fn next(&mut self) -> Result<Option<ContextFrame>, ContextFrameError> {
        let unsearched = self.pending.get(self.searched..).unwrap_or_default();
        let Some(at) = unsearched.iter().position(|byte| *byte == b'\n') else {
            self.searched = self.pending.len();
            return Ok(None);
        };
        let end = self.searched + at;
        let line = self.pending.get(..end).unwrap_or_default();
        let parsed = serde_json::from_slice::<RawFrame>(line).map_err(ContextFrameError::Malformed);
        self.pending.drain(..=end);
        self.searched = 0;
        if self.pending.capacity() > KEPT_BYTES_MAX {
            self.pending.shrink_to(KEPT_BYTES_MAX.max(self.pending.len()));
        }
        parsed.and_then(RawFrame::check).map(Some)
    }
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FrameKind {
    Ready,
    Failed,
    Running,
    Forked,
    Result,
    Error,
    Done,
}

/// A line with the fields of all kinds. Flat, so that nothing is decoded twice and nested values
/// are not decoded at all.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFrame {
    #[serde(rename = "type")]
    kind: FrameKind,
    #[serde(default)]
    message: String,
    #[serde(default)]
    pid: Option<u32>,
    #[serde(default)]
    is_main_result: bool,
    #[serde(default)]
    data: MimeTexts,
    #[serde(default)]
    truncated: MimeNames,
    #[serde(default)]
    name: String,
    #[serde(default)]
    value: String,
    #[serde(default)]
    traceback: String,
    #[serde(default)]
    failed: bool,
    #[serde(default)]
    cpu_us: u64,
    #[serde(default)]
    memory_bytes: u64,
}

impl RawFrame {
    fn check(self) -> Result<ContextFrame, ContextFrameError> {
        Ok(match self.kind {
            FrameKind::Ready => ContextFrame::Ready(self.pid),
            FrameKind::Forked => ContextFrame::Forked,
            FrameKind::Running => ContextFrame::Running,
            FrameKind::Failed => ContextFrame::Failed(self.message),
            FrameKind::Error => {
                let RawFrame { name, value, traceback, .. } = self;
                ContextFrame::Error(CellFailure { name, value, traceback })
            }
            FrameKind::Done => ContextFrame::Done(CellFigures {
                has_failed: self.failed,
                cpu_us: self.cpu_us,
                memory_bytes: self.memory_bytes,
            }),
            FrameKind::Result => {
                let (mut data, mut truncated) = (BTreeMap::new(), self.truncated.0);
                for (mime, text) in self.data.0 {
                    if !is_json(&mime) {
                        data.insert(mime, Value::String(text));
                    } else if text.len() > JSON_BYTES_MAX {
                        truncated.push(mime);
                    } else {
                        let value =
                            serde_json::from_str(&text).map_err(ContextFrameError::Malformed)?;
                        data.insert(mime, value);
                    }
                }
                let is_main_result = self.is_main_result;
                ContextFrame::Result(CellResult { is_main_result, data, truncated })
            }
        })
    }
}

/// Returns whether the value of a MIME type is JSON.
fn is_json(mime: &str) -> bool {
    JSON_TYPES.contains(&mime) || mime.ends_with("+json")
}

/// Bounded map of representations by MIME type.
#[derive(Debug, Default)]
struct MimeTexts(BTreeMap<String, String>);

/// Bounded list of MIME types.
#[derive(Debug, Default)]
struct MimeNames(Vec<String>);

impl<'de> Deserialize<'de> for MimeTexts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<MimeTexts, D::Error> {
        struct MimeTextsVisitor;

        impl<'de> Visitor<'de> for MimeTextsVisitor {
            type Value = MimeTexts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "at most {REPRESENTATIONS_MAX} texts by MIME type")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<MimeTexts, A::Error> {
                let mut texts = BTreeMap::new();
                while let Some(mime) = map.next_key::<String>()? {
                    if texts.len() >= REPRESENTATIONS_MAX || mime.len() > MIME_BYTES_MAX {
                        return Err(de::Error::custom("too many representations, or a long name"));
                    }
                    texts.insert(mime, map.next_value()?);
                }
                Ok(MimeTexts(texts))
            }
        }

        deserializer.deserialize_map(MimeTextsVisitor)
    }
}

impl<'de> Deserialize<'de> for MimeNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<MimeNames, D::Error> {
        struct MimeNamesVisitor;

        impl<'de> Visitor<'de> for MimeNamesVisitor {
            type Value = MimeNames;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "at most {REPRESENTATIONS_MAX} MIME types")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<MimeNames, A::Error> {
                let mut names = Vec::new();
                while let Some(mime) = seq.next_element::<String>()? {
                    if names.len() >= REPRESENTATIONS_MAX || mime.len() > MIME_BYTES_MAX {
                        return Err(de::Error::custom("too many MIME types, or a long one"));
                    }
                    names.push(mime);
                }
                Ok(MimeNames(names))
            }
        }

        deserializer.deserialize_seq(MimeNamesVisitor)
    }
}

#[cfg(test)]
mod tests {
    //! Lines of well-behaved and misbehaving contexts.

    use super::*;

    fn read(bytes: &[u8], cut: usize) -> Vec<Result<ContextFrame, String>> {
        let (mut reader, mut all) = (FrameReader::default(), Vec::new());
        for part in bytes.chunks(cut) {
            if let Err(error) = reader.push(part) {
                all.push(Err(error.to_string()));
                return all;
            }
            loop {
                match reader.next() {
                    Ok(Some(frame)) => all.push(Ok(frame)),
                    Ok(None) => break,
                    Err(error) => {
                        all.push(Err(error.to_string()));
                        return all;
                    }
                }
            }
        }
        all
    }

    #[test]
    fn frames_are_the_same_however_they_arrive() {
        let text = concat!(
            "{\"type\":\"forked\"}\n{\"type\":\"ready\",\"pid\":7}\n{\"type\":\"running\"}\n",
            "{\"type\":\"result\",\"is_main_result\":true,",
            "\"data\":{\"text/plain\":\"1\",\"application/json\":\"[1,null]\"}}\n",
            "{\"type\":\"error\",\"name\":\"E\",\"value\":\"v\",\"traceback\":\"t\"}\n",
            "{\"type\":\"done\",\"failed\":true,\"cpu_us\":5,\"memory_bytes\":7}\n",
        );
        let whole = read(text.as_bytes(), text.len());
        assert_eq!(whole.len(), 6);
        let first = [ContextFrame::Forked, ContextFrame::Ready(Some(7)), ContextFrame::Running];
        assert_eq!(whole[..3], first.map(Ok));
        let Ok(ContextFrame::Result(result)) = &whole[3] else { panic!("{:?}", whole[3]) };
        assert_eq!(result.data["application/json"], serde_json::json!([1, null]));
        for cut in [1, 2, 7, 64] {
            assert_eq!(read(text.as_bytes(), cut), whole, "{cut}");
        }
    }

    #[test]
    fn what_is_not_of_the_protocol_ends_the_stream() {
        let many: Vec<String> =
            (0..=REPRESENTATIONS_MAX).map(|n| format!("\"t{n}\":\"\"")).collect();
        let long = "m".repeat(MIME_BYTES_MAX + 1);
        for line in [
            "garbage".to_owned(),
            "{}".to_owned(),
            "{\"type\":\"run\"}".to_owned(),
            "{\"type\":\"ready\",\"more\":[[[]]]}".to_owned(),
            "{\"type\":\"ready\",\"pid\":-1}".to_owned(),
            "{\"type\":\"result\",\"data\":{\"text/plain\":1}}".to_owned(),
            "{\"type\":\"result\",\"data\":{\"application/json\":\"[\"}}".to_owned(),
            format!("{{\"type\":\"result\",\"data\":{{{}}}}}", many.join(",")),
            format!("{{\"type\":\"result\",\"data\":{{\"{long}\":\"\"}}}}"),
            format!("{{\"type\":\"result\",\"truncated\":[\"{long}\"]}}"),
            "{\"type\":\"done\",\"cpu_us\":-1}".to_owned(),
        ] {
            let all = read(format!("{line}\n").as_bytes(), 4096);
            assert!(matches!(all.as_slice(), [Err(_)]), "{line}: {all:?}");
        }
    }

    #[test]
    fn a_line_without_an_end_is_not_kept_for_ever() {
        let mut reader = FrameReader::default();
        let part = vec![b'x'; FRAME_BYTES_MAX];
        reader.push(&part).unwrap();
        assert!(reader.next().unwrap().is_none());
        assert!(matches!(reader.push(b"x"), Err(ContextFrameError::TooLong)));
    }
}
