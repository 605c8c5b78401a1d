//! Entry points of the fuzz targets: each decodes bytes and asserts properties of the result.

use crate::codec::session::{ProcessEnd, SandboxUsage, SessionSandboxLimits, StartProgram};
use crate::codec::{EndReport, MalformedMessage, MessageReader, MessageWriter, StartMessage};
use crate::failure::{STEP_CHARS_MAX, StepFailure};
pub use crate::guest::files::fuzzing::archive;
use crate::session::files::wire;

/// Length of the head of a message without an id.
const KIND_BYTES: usize = 1;
/// Length of the head of a frame of a session: its kind and its id.
const FRAME_HEAD_BYTES: usize = 9;

/// Decodes a message without its head, encodes it, and decodes that. A macro, because some messages
/// borrow from the bytes.
macro_rules! again {
    ($bytes:expr, $head_bytes:expr, $read:expr, $write:expr) => {
        if let Ok(message) = $read(&mut MessageReader($bytes)) {
            let written = $write(&message);
            let body = written.get($head_bytes..).expect("a message of ours has its head");
            let second = $read(&mut MessageReader(body)).expect("a message of ours");
            assert_eq!(format!("{message:?}"), format!("{second:?}"));
        }
    };
}

/// Decodes `bytes` as each message between server, spawner, guest init and file helper. A decoded
/// message survives encoding and decoding, except for the end of a long step.
pub fn messages(bytes: &[u8]) {
    again!(bytes, KIND_BYTES, StartMessage::decode, |it: &StartMessage<'_>| it.encode());
    again!(bytes, KIND_BYTES, EndReport::decode, |it: &EndReport| it.encode());
    again!(bytes, KIND_BYTES, step_failure, |it: &StepFailure| it.encode(0));
    again!(bytes, KIND_BYTES, SandboxUsage::decode, |it: &SandboxUsage| it
        .encode(MessageWriter::new(0))
        .finish());
    again!(bytes, FRAME_HEAD_BYTES, StartProgram::decode, |it: &StartProgram<'_>| it.encode(7));
    again!(bytes, FRAME_HEAD_BYTES, ProcessEnd::decode, |it: &ProcessEnd| it.encode(7));
    again!(bytes, FRAME_HEAD_BYTES, SessionSandboxLimits::read, |it: &SessionSandboxLimits| it
        .encode(7));
    if let Ok((id, request)) = wire::FileRequest::decode(bytes) {
        let written = request.encode(id);
        assert_eq!(wire::FileRequest::decode(&written).expect("a request of ours"), (id, request));
    }
    if let Ok((id, answer)) = wire::decode_answer(bytes)
        && answer.as_ref().err().is_none_or(|it| it.detail.len() <= wire::DETAIL_BYTES_MAX)
    {
        let written = wire::encode_answer(id, &answer);
        assert_eq!(wire::decode_answer(&written).expect("an answer of ours"), (id, answer));
    }
    records(bytes);
}

/// Decodes a failure as it would be encoded: the end of a long step is cut off.
fn step_failure(reader: &mut MessageReader<'_>) -> Result<StepFailure, MalformedMessage> {
    let StepFailure { step, errno } = StepFailure::decode(reader)?;
    Ok(StepFailure { step: step.chars().take(STEP_CHARS_MAX).collect(), errno })
}

/// Takes records from a pipe: each must fit into the remaining bytes, and into the maximum length.
fn records(bytes: &[u8]) {
    let mut rest = bytes;
    loop {
        let before = rest.len();
        let Ok(Some(record)) = wire::take_record(&mut rest) else { return };
        assert!(record.len() <= wire::RECORD_BYTES_MAX && rest.len() + record.len() + 4 == before);
        if let Some(number) = wire::mark_of(record) {
            assert_eq!(wire::mark(number), wire::record(record));
        }
    }
}
