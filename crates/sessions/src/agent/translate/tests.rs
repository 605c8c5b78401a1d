//! Lines of the real program (shortened), and their translation.

use super::*;

const UUID: &str = "660ad063-1abe-4f39-bef1-4b5ff22173c5";

/// Translates lines to `turn text {…}` or `- message {…}` for each event, and to their meanings.
fn told(translator: &mut LineTranslator, lines: &[&str]) -> Vec<String> {
    let mut out = Vec::new();
    for line in lines {
        let said = translator.line(line.as_bytes(), &mut |in_turn, kind, data| {
            let whose = if in_turn { "turn" } else { "-" };
            // The line itself is not checked again.
            let data = if kind == Kind::Message { String::new() } else { format!(" {data}") };
            out.push(format!("{whose} {}{data}", kind.as_str()));
        });
        if said != LineMeaning::Nothing {
            out.push(format!("{said:?}"));
        }
    }
    out
}

fn in_turn(partial: bool) -> LineTranslator {
    let mut translator = LineTranslator::new(AgentDriver::Claude);
    translator.begin(UUID.to_owned(), partial);
    translator
}

fn check(partial: bool, lines: &[&str], expected: &[&str]) {
    assert_eq!(told(&mut in_turn(partial), lines), expected, "{lines:?}");
}

#[test]
fn messages_become_events_and_stay_what_they_are() {
    let assistant = |block: &str| {
        format!(r#"{{"type":"assistant","message":{{"role":"assistant","content":[{block}]}}}}"#)
    };
    check(
        false,
        &[
            &assistant(r#"{"type":"text","text":"hi"}"#),
            &assistant(r#"{"type":"thinking","thinking":"hm","signature":"s"}"#),
            &assistant(r#"{"type":"tool_use","id":"t1","name":"Bash","input":{"command":"id"}}"#),
            r#"{"type":"user","message":{"role":"user","content":[{"tool_use_id":"t1","type":"tool_result","content":"1000"}]}}"#,
            r#"{"type":"user","message":{"role":"user","content":"hello"},"isReplay":true}"#,
            r#"{"type":"rate_limit_event"}"#,
        ],
        &[
            r#"turn text {"text":"hi"}"#,
            "turn message",
            r#"turn reasoning {"text":"hm"}"#,
            "turn message",
            r#"turn tool_use {"id":"t1","input":{"command":"id"},"name":"Bash"}"#,
            "turn message",
            r#"turn tool_result {"content":"1000","is_error":false,"tool_use_id":"t1"}"#,
            "turn message",
            "turn message",
        ],
    );
}

#[test]
fn pieces_are_told_to_those_who_want_them() {
    let piece = |delta: &str, of: &str| {
        format!(
            r#"{{"type":"stream_event","event":{{"type":"content_block_delta","delta":{delta}}},"parent_tool_use_id":{of}}}"#
        )
    };
    let lines = [
        piece(r#"{"type":"text_delta","text":"a"}"#, "null"),
        piece(r#"{"type":"thinking_delta","thinking":"b"}"#, "null"),
        piece(r#"{"type":"input_json_delta","partial_json":"{"}"#, "null"),
        piece(r#"{"type":"signature_delta","signature":"x"}"#, "null"),
        piece(r#"{"type":"text_delta","text":"of an agent's agent"}"#, r#""t1""#),
        piece(r#"{"type":"text_delta","text":7}"#, "null"),
        piece(r#"{"type":"text_delta","text":""}"#, "null"),
        r#"{"type":"stream_event","event":{"type":"message_stop"}}"#.to_owned(),
    ];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let told = [
        r#"turn text_delta {"delta":"a"}"#,
        r#"turn thinking_delta {"delta":"b"}"#,
        r#"turn input_json_delta {"delta":"{"}"#,
    ];
    check(true, &lines, &told);
    check(false, &lines, &[]);
}

#[test]
fn a_result_says_what_its_turn_cost() {
    let result = |total: &str, more: &str| {
        format!(
            r#"{{"type":"result","subtype":"success","is_error":false,"result":"hi","num_turns":1,"duration_ms":5,"total_cost_usd":{total},"usage":{{"input_tokens":3,"output_tokens":2,"cache_read_input_tokens":1}}{more}}}"#
        )
    };
    let mut translator = in_turn(false);
    let mut cost = |line: &str| {
        let said = translator.line(line.as_bytes(), &mut |_, _, _| {});
        let LineMeaning::Result(outcome) = said else { panic!("{said:?}") };
        assert_eq!(outcome.error, None);
        assert_eq!((outcome.usage.input_tokens, outcome.usage.output_tokens), (3, 2));
        assert_eq!(outcome.usage.cache_read_tokens, 1);
        outcome.usage.cost_usd
    };
    assert_eq!(cost(&result("0.25", "")), 0.25);
    assert_eq!(cost(&result("0.75", "")), 0.5);
    // The total of a continuing process may include the cost of the earlier conversation.
    let by_model = r#","model_usage_since_last_result":{"a":{"costUSD":0.5},"b":{"costUSD":0.25}}"#;
    assert_eq!(cost(&result("9.0", by_model)), 0.75);
    assert_eq!(cost(&result("-1.0", "")), 0.0);
}

#[test]
fn a_turn_fails_with_what_the_agent_says() {
    let check = |fields: &str, expected: &str| {
        let line = format!(r#"{{"type":"result","is_error":true,{fields}}}"#);
        let said = in_turn(false).line(line.as_bytes(), &mut |_, _, _| {});
        let LineMeaning::Result(outcome) = said else { panic!("{said:?}") };
        assert_eq!(outcome.error.as_deref(), Some(expected), "{fields}");
    };
    check(r#""subtype":"success","result":"API Error: 400""#, "API Error: 400");
    check(r#""subtype":"error_max_turns","errors":["Reached it"]"#, "Reached it");
    check(r#""subtype":"error_during_execution""#, "error_during_execution");
    check(r#""num_turns":0"#, "the agent failed");
}

#[test]
fn only_the_result_of_its_turn_ends_it() {
    let life = |uuid: &str, state: &str| {
        format!(r#"{{"type":"command_lifecycle","command_uuid":"{uuid}","state":"{state}"}}"#)
    };
    let of = |fields: &str| format!(r#"{{"type":"result","is_error":false{fields}}}"#);
    let is_result = |translator: &mut LineTranslator, line: &str| {
        matches!(translator.line(line.as_bytes(), &mut |_, _, _| {}), LineMeaning::Result(_))
    };
    let ours = of(&format!(r#","user_message_uuids":["{UUID}"]"#));
    let own = of(r#","origin":{"kind":"task-notification"}"#);
    let plain = of("");

    // A task of the agent ended just when the message arrived.
    let mut agent = in_turn(false);
    assert!(!is_result(&mut agent, &own));
    assert!(!is_result(&mut agent, &of(r#","user_message_uuid":"another""#)));
    assert!(is_result(&mut agent, &ours));

    // For an agent that reports starts, nothing before the start belongs to the turn.
    agent.end();
    told(&mut agent, &[&life(UUID, "completed")]);
    agent.begin(UUID.to_owned(), false);
    let text = r#"{"type":"assistant","message":{"content":[{"type":"text","text":"x"}]}}"#;
    told(&mut agent, &[&life(UUID, "queued"), &life("another", "started")]);
    assert_eq!(told(&mut agent, &[text]), [r#"- text {"text":"x"}"#, "- message"]);
    assert!(!is_result(&mut agent, &plain));
    told(&mut agent, &[&life(UUID, "started")]);
    assert_eq!(told(&mut agent, &[text]), [r#"turn text {"text":"x"}"#, "turn message"]);
    assert!(is_result(&mut agent, &plain));

    // Without a turn.
    agent.end();
    assert!(!is_result(&mut agent, &plain) && !is_result(&mut agent, &ours));
}

#[test]
fn a_conversation_is_told_when_it_is_new_and_has_a_plain_name() {
    let mut translator = LineTranslator::new(AgentDriver::Command);
    let mut name = |id: &str| {
        let line = json!({"type": "system", "subtype": "init", "session_id": id}).to_string();
        let said = translator.line(line.as_bytes(), &mut |_, _, _| {});
        assert_eq!(said, LineMeaning::Ready);
        translator.new_conversation().map(str::to_owned)
    };
    assert_eq!(name("c-1"), Some("c-1".to_owned()));
    assert_eq!(name("c-1"), None);
    assert_eq!(name("c-2"), Some("c-2".to_owned()));
    for id in ["", "--model=x", "../x", "a b", "a\n", &"x".repeat(CONVERSATION_BYTES_MAX + 1)] {
        assert_eq!(name(id), None, "{id:?}");
    }
}

#[test]
fn a_conversation_that_is_not_there_is_no_turn() {
    let line = r#"{"type":"result","subtype":"error_during_execution","is_error":true,"num_turns":0,"errors":["No conversation found with session ID: 1"]}"#;
    let mut translator = in_turn(false);
    assert_eq!(told(&mut translator, &[line]), Vec::<String>::new());
    assert!(translator.conversation_lost);
}

#[test]
fn control_is_told_apart_from_what_is_said() {
    check(
        false,
        &[
            r#"{"type":"control_response","response":{"subtype":"success","request_id":"cove-1","response":{}}}"#,
            r#"{"type":"control_response","response":{"subtype":"error","request_id":"cove-2","error":"no"}}"#,
            r#"{"type":"control_request","request_id":"r","request":{"subtype":"can_use_tool"}}"#,
            r#"{"type":"control_cancel_request","request_id":"r"}"#,
            r#"{"type":"keep_alive"}"#,
        ],
        &[
            r#"Answer("cove-1", Ok(()))"#,
            r#"Answer("cove-2", Err("no"))"#,
            r#"Request("r", "can_use_tool")"#,
        ],
    );
}

#[test]
fn capabilities_are_believed() {
    let init = |capabilities: &str| {
        let line = format!(r#"{{"type":"system","subtype":"init","capabilities":{capabilities}}}"#);
        let mut translator = LineTranslator::new(AgentDriver::Command);
        translator.line(line.as_bytes(), &mut |_, _, _| {});
        translator.has_control
    };
    assert!(init(r#"["x","control"]"#));
    assert!(!init(r#"["x"]"#) && !init(r#""control""#) && !init("null"));
}

proptest::proptest! {
    /// Any line is translated or rejected, and a line without a turn ends none.
    #[test]
    fn no_line_is_too_strange(line in proptest::prelude::any::<Vec<u8>>(), kind in 0_usize..6) {
        let kinds = ["assistant", "user", "result", "system", "stream_event", "control_response"];
        let text = String::from_utf8_lossy(&line);
        let framed = json!({"type": kinds[kind], "message": text, "event": [text], "response": {}});
        for line in [line.clone(), framed.to_string().into_bytes()] {
            let said = LineTranslator::new(AgentDriver::Claude).line(&line, &mut |in_turn, _, _| {
                assert!(!in_turn);
            });
            proptest::prop_assert!(!matches!(said, LineMeaning::Result(_)));
        }
    }
}

#[test]
fn lines_of_another_protocol_are_refused() {
    let deep = format!(r#"{{"type":"x","a":{}{}}}"#, "[".repeat(500), "]".repeat(500));
    for line in ["hello", "[]", "7", "null", "{}", r#"{"type":7}"#, "{\"type\":\"x\"", &deep] {
        let said = in_turn(false).line(line.as_bytes(), &mut |_, _, _| panic!("{line}"));
        assert!(matches!(said, LineMeaning::Malformed(_)), "{line}: {said:?}");
    }
    // Invalid UTF-8 is replaced.
    let line = b"{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"text\",\"text\":\"\xff\"}]}}";
    let mut texts = Vec::new();
    in_turn(false).line(line, &mut |_, kind, data| texts.push((kind, data)));
    assert_eq!(texts[0], (Kind::Text, json!({"text": "\u{fffd}"})));
}
