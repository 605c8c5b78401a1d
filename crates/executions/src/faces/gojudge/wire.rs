//! go-judge's JSON, as its clients write and read it.
//!
//! Parsing is as lenient as go-judge's: missing or `null` fields have their zero value, and unknown
//! fields are ignored. Sizes are bytes, times are nanoseconds.
//!
//! # References
//! - <https://github.com/criyle/go-judge#rest-api-interface>

use std::collections::BTreeMap;

use serde::de::{Deserialize, Deserializer};
use serde::{Deserialize as DeriveDeserialize, Serialize};

use crate::answers::AnswerMemory;

/// Body of `POST /run`, and a message of `/ws` and `/stream`.
#[derive(Debug, Default, DeriveDeserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct GojudgeRequest {
    #[serde(deserialize_with = "lenient")]
    pub(super) request_id: String,
    /// On `/ws` only: cancels that request; other fields are ignored.
    #[serde(deserialize_with = "lenient")]
    pub(super) cancel_request_id: String,
    #[serde(deserialize_with = "lenient")]
    pub(super) cmd: Vec<GojudgeCommand>,
    #[serde(deserialize_with = "lenient")]
    pub(super) pipe_mapping: Vec<PipeMap>,
}

/// A program.
#[derive(Debug, Default, DeriveDeserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct GojudgeCommand {
    #[serde(deserialize_with = "lenient")]
    pub(super) args: Vec<String>,
    #[serde(deserialize_with = "lenient")]
    pub(super) env: Vec<String>,
    /// Files by descriptor.
    #[serde(deserialize_with = "lenient")]
    pub(super) files: Vec<Option<CmdFile>>,
    #[serde(deserialize_with = "lenient")]
    pub(super) tty: bool,
    #[serde(deserialize_with = "lenient")]
    pub(super) cpu_limit: u64,
    /// The older name of `clock_limit`; takes precedence over it.
    #[serde(deserialize_with = "lenient")]
    pub(super) real_cpu_limit: u64,
    #[serde(deserialize_with = "lenient")]
    pub(super) clock_limit: u64,
    #[serde(deserialize_with = "lenient")]
    pub(super) memory_limit: u64,
    #[serde(deserialize_with = "lenient")]
    pub(super) stack_limit: u64,
    #[serde(deserialize_with = "lenient")]
    pub(super) proc_limit: u64,
    #[serde(deserialize_with = "lenient")]
    pub(super) cpu_rate_limit: u64,
    #[serde(deserialize_with = "lenient")]
    pub(super) cpu_set_limit: String,
    #[serde(deserialize_with = "lenient")]
    pub(super) strict_memory_limit: bool,
    #[serde(deserialize_with = "lenient")]
    pub(super) data_segment_limit: bool,
    #[serde(deserialize_with = "lenient")]
    pub(super) address_space_limit: bool,
    #[serde(deserialize_with = "lenient")]
    pub(super) copy_in: BTreeMap<String, CmdFile>,
    #[serde(deserialize_with = "lenient")]
    pub(super) copy_out: Vec<String>,
    #[serde(deserialize_with = "lenient")]
    pub(super) copy_out_cached: Vec<String>,
    #[serde(deserialize_with = "lenient")]
    pub(super) copy_out_max: u64,
    #[serde(deserialize_with = "lenient")]
    pub(super) copy_out_truncate: bool,
}

/// A file or a stream, depending on the fields that are set.
#[derive(Debug, Default, DeriveDeserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct CmdFile {
    pub(super) src: Option<String>,
    pub(super) content: Option<String>,
    pub(super) file_id: Option<String>,
    pub(super) name: Option<String>,
    pub(super) max: Option<i64>,
    pub(super) symlink: Option<String>,
    #[serde(deserialize_with = "lenient")]
    pub(super) stream_in: bool,
    #[serde(deserialize_with = "lenient")]
    pub(super) stream_out: bool,
}

/// A pipe: the program `out` reads the output of the program `in`.
#[derive(Debug, Default, DeriveDeserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PipeMap {
    #[serde(rename = "in", deserialize_with = "lenient")]
    pub(super) source: PipeIndex,
    #[serde(rename = "out", deserialize_with = "lenient")]
    pub(super) target: PipeIndex,
    #[serde(deserialize_with = "lenient")]
    pub(super) proxy: bool,
    /// Name of the writing program's file that keeps the traffic of a relayed pipe.
    #[serde(deserialize_with = "lenient")]
    pub(super) name: String,
    #[serde(deserialize_with = "lenient")]
    pub(super) max: i64,
}

/// A descriptor of one of the programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, DeriveDeserialize)]
#[serde(default)]
pub(super) struct PipeIndex {
    #[serde(deserialize_with = "lenient")]
    pub(super) index: i64,
    #[serde(deserialize_with = "lenient")]
    pub(super) fd: i64,
}

/// A new size of a terminal, on `/stream`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, DeriveDeserialize)]
#[serde(default)]
pub(super) struct GojudgeResize {
    #[serde(deserialize_with = "lenient")]
    pub(super) index: u8,
    #[serde(deserialize_with = "lenient")]
    pub(super) fd: u8,
    #[serde(deserialize_with = "lenient")]
    pub(super) rows: u16,
    #[serde(deserialize_with = "lenient")]
    pub(super) cols: u16,
}

/// Result of one program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GojudgeResult {
    pub(super) status: GojudgeStatus,
    pub(super) exit_status: i32,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) error: String,
    pub(super) time: u64,
    pub(super) memory: u64,
    pub(super) run_time: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) proc_peak: u64,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) files: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) file_ids: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) file_error: Vec<FileError>,
}

impl GojudgeResult {
    /// Creates a result without figures.
    pub(super) fn new(status: GojudgeStatus, error: impl Into<String>) -> GojudgeResult {
        GojudgeResult {
            status,
            exit_status: 0,
            error: error.into(),
            time: 0,
            memory: 0,
            run_time: 0,
            proc_peak: 0,
            files: BTreeMap::new(),
            file_ids: BTreeMap::new(),
            file_error: Vec::new(),
        }
    }

    /// Returns the bytes of its files, which are the long parts.
    pub(super) fn content_bytes(&self) -> usize {
        self.files.values().map(String::len).sum()
    }
}

/// Status of a program. Those that only a judge could assign are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum GojudgeStatus {
    Accepted,
    #[serde(rename = "Memory Limit Exceeded")]
    MemoryLimitExceeded,
    #[serde(rename = "Time Limit Exceeded")]
    TimeLimitExceeded,
    #[serde(rename = "Output Limit Exceeded")]
    OutputLimitExceeded,
    #[serde(rename = "File Error")]
    FileError,
    #[serde(rename = "Nonzero Exit Status")]
    NonzeroExit,
    Signalled,
    #[serde(rename = "Dangerous Syscall")]
    DangerousSyscall,
    #[serde(rename = "Internal Error")]
    InternalError,
}

/// Error about one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct FileError {
    pub(super) name: String,
    #[serde(rename = "type")]
    pub(super) kind: FileErrorKind,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) message: String,
}

/// Step at which an operation on a file failed. go-judge has more values, for steps that cannot
/// fail separately here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum FileErrorKind {
    CopyInCreateFile,
    CopyInCopyContent,
    CopyOutOpen,
    CopyOutNotRegularFile,
    CopyOutSizeExceeded,
    CopyOutCreateFile,
    CollectSizeExceeded,
    Symlink,
}

/// An answer on `/ws` and `/stream`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GojudgeResponse {
    pub(super) request_id: String,
    pub(super) results: Vec<GojudgeResult>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) error: String,
    /// Memory of the results, until they are sent.
    #[serde(skip)]
    pub(super) room: Option<AnswerMemory>,
}

impl GojudgeResponse {
    /// Returns the bytes of its files.
    pub(super) fn content_bytes(&self) -> usize {
        self.results.iter().map(GojudgeResult::content_bytes).sum()
    }
}

/// Accepts `null` as the zero value, like go-judge.
fn lenient<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// Returns file content as JSON text: each byte that is not UTF-8 becomes one U+FFFD, as in
/// go-judge.
pub(super) fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| {
        let mut text = String::new();
        for chunk in error.as_bytes().utf8_chunks() {
            text.push_str(chunk.valid());
            text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_null_missing_or_unknown_is_zero() {
        let request: GojudgeRequest = serde_json::from_str(
            r#"{"requestId":null,"cmd":[{"args":["a"],"files":[null,{"name":"out","max":1}],
            "copyIn":null,"tty":null,"nobody":"knows","copyOutDir":"x"}],"pipeMapping":null}"#,
        )
        .unwrap();
        let [cmd] = &*request.cmd else { panic!("{request:?}") };
        assert!(cmd.files[0].is_none() && !cmd.tty && cmd.copy_in.is_empty());
        assert_eq!(cmd.files[1].as_ref().unwrap().max, Some(1));
        for bad in [r#"{"cmd":1}"#, r#"{"cmd":[{"cpuLimit":-1}]}"#, r#"{"cmd":[{"args":"a"}]}"#] {
            assert!(serde_json::from_str::<GojudgeRequest>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn empty_parts_of_an_outcome_are_left_out() {
        let outcome = GojudgeResult::new(GojudgeStatus::NonzeroExit, "");
        assert_eq!(
            serde_json::to_string(&outcome).unwrap(),
            r#"{"status":"Nonzero Exit Status","exitStatus":0,"time":0,"memory":0,"runTime":0}"#
        );
    }

    #[test]
    fn each_stray_byte_is_one_replacement_character() {
        assert_eq!(text(b"a\xe4\xbd\xa0b".to_vec()), "a\u{4f60}b");
        assert_eq!(text(b"a\xe4\xbdb\xff".to_vec()), "a\u{fffd}\u{fffd}b\u{fffd}");
    }
}
