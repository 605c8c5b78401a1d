//! Model grants: Claude's real command line in the sandbox, a stand-in for the model outside.

use serde_json::{Value, json};
use testkit::until;

use crate::gateway::{audit, patch};
use crate::sessions_claude::{KEY, Model, agent};
use crate::sessions_support::{SOON, Sessions, ok, serve_sessions, with};
use crate::support::beside_others;

/// Model that the agent uses.
const ASKED: &str = "claude-haiku-4-5";

/// Prices of a million input and output tokens, from Claude's own list.
const PRICE: (f64, f64) = (1.0, 5.0);

/// Returns the requests that the model received.
fn model_requests(model: &Model) -> Vec<Value> {
    let log = model.log();
    let lines = log.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.filter(|line: &Value| line["path"] == "/v1/messages").collect()
}

/// Returns the recorded input and output tokens of a session, as soon as there are this many
/// requests.
fn used(sessions: &Sessions, session: &str, requests: usize) -> (u64, u64) {
    let done = until(&format!("{requests} requests"), SOON, || {
        let records = audit(&sessions.client, session, |record| record["event"] == "request");
        let done = records.into_iter().filter(|record| record["outcome"] == "done");
        let done: Vec<Value> = done.filter(|record| record["event"] == "request").collect();
        if done.len() == requests { Ok(done) } else { Err(format!("{done:?}")) }
    });
    let tokens = done.iter().map(|record| {
        // `POST /v1/messages claude-haiku-4-5 200 (14 tokens in, 4 out)`
        let text = record["text"].as_str().unwrap();
        let numbers = text.strip_prefix(&format!("POST /v1/messages {ASKED} 200 (")).unwrap();
        let (questions, answers) = numbers.split_once(" tokens in, ").unwrap();
        let answers = answers.strip_suffix(" out)").unwrap();
        (questions.parse::<u64>().unwrap(), answers.parse::<u64>().unwrap())
    });
    tokens.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

/// Returns the cost of tokens, in dollars.
fn cost((questions, answers): (u64, u64)) -> f64 {
    let [questions, answers] = [questions, answers].map(|it| f64::from(u32::try_from(it).unwrap()));
    (questions * PRICE.0 + answers * PRICE.1) / 1e6
}

#[test]
fn claude_asks_as_its_grant_says() {
    let _guard = beside_others();
    let model = Model::start();
    let (input, output) = PRICE;
    let prices = format!("[gateway.model.prices.{ASKED:?}]\ninput = {input}\noutput = {output}");
    let server = serve_sessions(&format!("{}\n{prices}", model.settings()));
    let sessions = Sessions::from(&server);
    sessions.deploy(&with(agent("claude"), &json!({"grants": [{"kind": "model"}]})));
    let options = json!({"model": ASKED, "permission_mode": "bypassPermissions"});
    let session = sessions.create(&json!({"agent": "claude", "options": options}));
    let command = "run: echo $ANTHROPIC_BASE_URL $ANTHROPIC_API_KEY; cat data.txt";
    let seen = sessions.ask(&session, command);
    assert!(seen.contains("http://127.0.0.1:8100 provided-by-cove\nof the folder"), "{seen}");
    // A request for the tool, and one with its result; each has the server's key, which the
    // stand-in checks, and the counts equal the agent's own.
    let mut requests = 2;
    let check = |requests: usize| {
        let requests_seen = model_requests(&model);
        assert_eq!(requests_seen.len(), requests, "{requests_seen:?}");
        assert!(
            requests_seen.iter().all(|it| it["key"] == "right" && it["model"] == ASKED),
            "{requests_seen:?}"
        );
        let tokens = used(&sessions, &session, requests);
        let usage = ok(&sessions.client.get("/v1/usage"))["total"].clone();
        let counted = (usage["input_tokens"].as_u64(), usage["output_tokens"].as_u64());
        assert_eq!(counted, (Some(tokens.0), Some(tokens.1)), "{usage}");
        let dollars = usage["cost_usd"].as_f64().unwrap();
        assert!((dollars - cost(tokens)).abs() < 1e-9, "{usage}");
        tokens
    };
    let mut tokens = check(requests);
    // Limits of a changed grant apply to previous usage. A refusal uses the protocol's error
    // format, is not retried, and does not end the conversation.
    let mut refusals = 0;
    for (limit, status, why) in [
        ("tokens", "(429)", "the budget of the grant is used up"),
        ("dollars", "(429)", "the budget of the grant is used up"),
        ("models", "403", "this model is not granted"),
    ] {
        let total = tokens.0 + tokens.1;
        let (none_left, some_left) = match limit {
            "tokens" => (json!(total), json!(total + 1)),
            "dollars" => (json!(cost(tokens) - 1e-6), json!(cost(tokens) + 1e-6)),
            _ => (json!(["claude-opus-4-5"]), json!(["claude-opus-4-5", ASKED])),
        };
        for (value, is_refused) in [(none_left, true), (some_left, false)] {
            // Dollars are counted only for listed models.
            let grant = json!({"kind": "model", "models": [ASKED], (limit): value});
            let patched = patch(&sessions.client, &session, &json!({"grants": [grant]}));
            assert_eq!(patched.status, 200, "{grant}: {}", patched.text());
            let turn = sessions.hear(&session, &format!("with {limit}"));
            if is_refused {
                let errors = turn.errors();
                assert!(errors.len() == 1 && errors[0].contains(why), "{grant}: {errors:?}");
                assert!(errors[0].contains(status), "{grant}: {errors:?}");
                refusals += 1;
            } else {
                assert!(turn.result().starts_with("You said: "), "{grant}: {turn:?}");
                requests += 1;
            }
            tokens = check(requests);
        }
    }
    let refused = |record: &Value| record["outcome"] == "refused";
    let records = audit(&sessions.client, &session, refused);
    assert_eq!(records.iter().filter(|it| refused(it)).count(), refusals, "{records:?}");
    assert!(!format!("{records:?}{:?}", sessions.kept(&session, 0)).contains(KEY));
}
