//! Asynchronous executions: submitting, waiting, listing, cancelling, and the queue's limits.

use std::thread;

use serde_json::{Value, json};
use testkit::{Client, Request, process, until};

use crate::asynchronous::{
    SOON, assert_error, delete, ended, figures, id, path, post, post_request, record, set_paused,
    submit, submit_all, wait_for_state,
};
use crate::console::document;
use crate::support::{
    alone_on_host, beside_others, is_execution_id, serve, serve_with, shell, wait_for_program,
    wait_until_gone,
};

#[test]
fn what_is_submitted_is_accepted_waited_for_and_kept() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let request = json!({"argv": ["/bin/sh", "-c", "echo out; echo err >&2; exit 3"],
        "label": "first", "priority": 7});
    let response = post(&client, "/v1/executions", &request);
    assert_eq!(response.status, 202, "{}", response.text());
    let accepted = response.json();
    assert!(is_execution_id(&id(&accepted)), "{accepted}");
    assert_eq!(response.header("location"), Some(&*path(&id(&accepted))));
    let known = [("language", json!("argv")), ("label", json!("first")), ("priority", json!(7))];
    let record = ended(&client, &id(&accepted));
    for (field, value) in &known {
        assert_eq!((&accepted[field], &record[field]), (value, value));
    }
    assert_eq!((&record["state"], &record["attempts"]), (&json!("finished"), &json!(1)));
    for (field, value) in [
        ("verdict", json!("RE")),
        ("exit_code", json!(3)),
        ("stdout", json!("out\n")),
        ("stderr", json!("err\n")),
        ("id", accepted["id"].clone()),
    ] {
        assert_eq!(record["result"][field], value, "{record}");
    }
    for field in ["created_at", "started_at", "finished_at", "expires_at"] {
        assert!(record[field].as_str().is_some_and(|date| date.ends_with('Z')), "{record}");
    }
    // Repeated reads, with and without waiting, return the same record.
    assert_eq!(ended(&client, &id(&accepted)), record);
    assert_eq!(crate::asynchronous::record(&client, &id(&accepted)), record);
}

#[test]
fn bad_requests_say_what_is_wrong() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let check = |request: Request, status, code, field| {
        let request_line = format!("{} {}", request.method, request.target);
        let response = client.send(&request);
        assert_eq!(response.status, status, "{request_line}: {}", response.text());
        assert_error(&response, status, code, field);
    };
    let good = json!({"argv": ["true"]});
    let raw = |body: &[u8]| {
        Request::new("POST", "/v1/executions").header("content-type", "application/json").body(body)
    };
    for target in [
        "/v1/executions?wait=maybe",
        "/v1/executions?wait=true&wait=true",
        "/v1/executions?sync=true",
        "/v1/queue/drain?everything=true",
        "/v1/queue/retry?all=perhaps",
    ] {
        check(post_request(target, &good), 400, "invalid_request", None);
    }
    for target in [
        "/v1/executions?cursor=a&cursor=b",
        "/v1/executions?owner=other",
        "/v1/queue?all=1",
        "/v1/queue?x",
    ] {
        check(Request::new("GET", target), 400, "invalid_request", None);
    }
    for (target, field) in [
        ("/v1/executions?state=done", "state"),
        ("/v1/executions?state=queued,", "state"),
        ("/v1/executions?limit=0", "limit"),
        ("/v1/executions?limit=201", "limit"),
        ("/v1/executions?cursor=zzz", "cursor"),
        ("/v1/executions?cursor=", "cursor"),
        ("/v1/executions?cursor='%20OR%201=1&limit=200", "cursor"),
    ] {
        check(Request::new("GET", target), 400, "invalid_request", Some(field));
    }
    for body in [&b""[..], b"{", b"not json", b"{\"argv\": [\"\xff\"]}", b"null", b"7"] {
        check(raw(body), 400, "invalid_request", None);
    }
    for (more, field) in [
        (json!({"priority": 101}), "priority"),
        (json!({"label": "x".repeat(1000)}), "label"),
        (json!({"webhook": {"url": "ftp://example.com/"}}), "webhook.url"),
        (json!({"webhook": {"url": "http://10.0.0.1/"}}), "webhook.url"),
        (json!({"terminal": {"rows": 0, "cols": 80}}), "terminal.rows"),
        (json!({"limits": {"cpu_ms": 0}}), "limits.cpu_ms"),
        (json!({"argv": [], "label": "x"}), "argv"),
    ] {
        let mut request = good.clone();
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        check(post_request("/v1/executions", &request), 400, "invalid_request", Some(field));
    }
    for (more, field) in [
        (json!({"deadline_ms": 5}), "deadline_ms"),
        (json!({"interactive": true}), "interactive"),
        (json!({"terminal": {"rows": 5, "cols": 80}}), "terminal"),
        (json!({"webhook": {"url": "https://example.com/"}}), "webhook"),
    ] {
        let mut request = good.clone();
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let request = post_request("/v1/executions?wait=true", &request);
        check(request, 400, "invalid_request", Some(field));
    }
    assert_eq!(figures(&client)["queued"], 0);
}

#[test]
fn hostile_ids_are_unknown() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let long = "x".repeat(8 << 10);
    let real = submit(&client, &shell("true"));
    ended(&client, &real);
    let lower = real.to_lowercase();
    for id in [
        "ex_00000000000000000000000000",
        "%2e%2e",
        "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "%00",
        "ex_%0d%0aset-cookie:%20a=b",
        "'%20OR%201=1%20--",
        "%25",
        "*",
        "%f0%9f%98%80",
        "%ff%fe",
        "-1",
        lower.as_str(),
        long.as_str(),
    ] {
        for (method, suffix) in [
            ("GET", ""),
            ("GET", "?wait=true"),
            ("DELETE", ""),
            ("GET", "/events"),
            ("POST", "/retry"),
        ] {
            let request = Request::new(method, &format!("/v1/executions/{id}{suffix}"));
            let response = client.send(&request);
            let context = format!("{method} {id:.40}{suffix}: {}", response.text());
            assert_error(&response, 404, "not_found", None);
            assert!(response.header("set-cookie").is_none(), "{context}");
        }
    }
    assert_eq!(record(&client, &real)["state"], "finished");
}

/// Ids on every page of a list, walked by its cursor.
fn walk(client: &Client, query: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut cursor = String::new();
    loop {
        let response = client.get(&format!("/v1/executions?{query}{cursor}"));
        assert_eq!(response.status, 200, "{query}: {}", response.text());
        let page = response.json();
        let executions = page["executions"].as_array().unwrap();
        found.extend(executions.iter().map(id));
        assert!(found.len() < 1000, "a walk without end");
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return found,
        }
    }
}

#[test]
fn lists_are_filtered_and_walked_newest_first() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let request = |label: &str, script: &str| {
        let mut request = shell(script);
        request["label"] = json!(label);
        request
    };
    let finished: Vec<String> = (0..7)
        .map(|number| {
            submit(&client, &request(if number % 2 == 0 { "even" } else { "odd" }, "true"))
        })
        .collect();
    let python = submit(&client, &json!({"language": "python", "source": "print(1)"}));
    for id in finished.iter().chain([&python]) {
        assert_eq!(ended(&client, id)["state"], "finished");
    }
    set_paused(&client, true);
    let waiting = submit_all(&client, &[request("even", "true"), request("a&b=ä", "true")]);
    let cancelled = submit(&client, &request("odd", "true"));
    assert_eq!(delete(&client, &cancelled).status, 200);

    let mut all = finished.clone();
    all.push(python.clone());
    all.extend(waiting.clone());
    all.push(cancelled.clone());
    all.reverse();
    let pick = |chosen: &[&String]| -> Vec<String> {
        all.iter().filter(|id| chosen.contains(id)).cloned().collect()
    };
    let even = pick(&[&finished[0], &finished[2], &finished[4], &finished[6]]);
    for (query, expected) in [
        ("limit=200", all.clone()),
        ("limit=1", all.clone()),
        ("limit=3", all.clone()),
        ("limit=11", all.clone()),
        ("state=queued&limit=1", pick(&[&waiting[0], &waiting[1]])),
        ("state=cancelled", vec![cancelled.clone()]),
        ("state=cancelled,queued&limit=2", pick(&[&waiting[0], &waiting[1], &cancelled])),
        ("state=running,expired,dead", vec![]),
        ("language=python", vec![python.clone()]),
        ("language=argv&state=finished&limit=4", pick(&finished.iter().collect::<Vec<_>>())),
        ("label=even&state=finished&limit=2", even),
        ("label=a%26b%3D%C3%A4", vec![waiting[1].clone()]),
        ("label=none", vec![]),
        ("language=cobol", vec![]),
        ("cursor=ex_00000000000000000000000000", vec![]),
    ] {
        assert_eq!(walk(&client, query), expected, "{query}");
    }
    // A list entry equals the record of the execution, except for its output.
    let listed = client.get("/v1/executions?language=python").json()["executions"][0].clone();
    assert_eq!((&listed["id"], &listed["state"]), (&json!(python), &json!("finished")));
    assert_eq!(listed["verdict"], "OK");
    all.reverse();
    assert_eq!(walk(&client, "order=asc&limit=3"), all);
    for (query, expected) in [
        ("verdict=OK&language=python", vec![python.clone()]),
        ("verdict=TLE", vec![]),
        ("text=%26b", vec![waiting[1].clone()]),
        ("from_ms=0&to_ms=1", vec![]),
        (&format!("id={python}"), vec![python.clone()]),
        ("tenant=*&language=python", vec![python.clone()]),
    ] {
        assert_eq!(walk(&client, query), expected, "{query}");
    }
    let record = client.get(&format!("/v1/executions/{python}?include=request")).json();
    assert_eq!(record["request"]["source"], "print(1)");
    let other = document(&server, "token", &["create", "--name", "other"]);
    let token = other["token"].as_str().unwrap().to_owned();
    let other = Client::new(client.address(), Some(token));
    assert_eq!(other.get("/v1/executions?tenant=*").status, 403);
    set_paused(&client, false);
}

#[test]
fn what_waits_and_what_runs_is_cancelled_and_what_ended_stays() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let running = submit(&client, &shell("echo begun; sleep 64007"));
    wait_for_state(&client, &running, "running");
    wait_for_program("64007");
    let response = delete(&client, &running);
    assert_eq!(response.status, 200, "{}", response.text());
    let record = ended(&client, &running);
    assert_eq!(record["state"], "cancelled", "{record}");
    assert!(record["message"].as_str().is_some_and(|it| it.contains("owner")), "{record}");
    wait_until_gone("64007");
    set_paused(&client, true);
    let waiting = submit(&client, &shell("true"));
    let response = delete(&client, &waiting);
    assert_eq!((response.status, &response.json()["state"]), (200, &json!("cancelled")));
    set_paused(&client, false);
    let done = submit(&client, &shell("true"));
    ended(&client, &done);
    for (id, state) in [(&running, "cancelled"), (&waiting, "cancelled"), (&done, "finished")] {
        let before = crate::asynchronous::record(&client, id);
        assert_eq!(before["state"], state);
        assert_error(&delete(&client, id), 409, "conflict", None);
        assert_eq!(crate::asynchronous::record(&client, id), before);
    }
    assert_eq!(crate::asynchronous::record(&client, &waiting)["attempts"], 0);
}

#[test]
fn a_key_makes_a_second_submission_harmless() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let keyed = |client: &Client, target: &str, key: &str, body: &Value| {
        client.send(&post_request(target, body).header("idempotency-key", key))
    };
    let (one, batch) = ("/v1/executions", "/v1/executions/batch");
    let request = shell("echo once");
    let first = keyed(&client, one, "k1", &request);
    assert_eq!(first.status, 202, "{}", first.text());
    let first = id(&first.json());
    ended(&client, &first);
    let again = keyed(&client, one, "k1", &request);
    assert_eq!((again.status, id(&again.json())), (202, first.clone()));
    // A repeat is answered from the record alone; the result is read by its id.
    assert_eq!(again.json()["result"], Value::Null);
    let record = client.get(&format!("/v1/executions/{first}")).json();
    assert_eq!(record["result"]["stdout"], "once\n");
    let field = Some("idempotency-key");
    assert_error(&keyed(&client, one, "k1", &shell("echo other")), 409, "conflict", field);
    // Each tenant has its own keys.
    let other = server.other_client("other", &[]);
    assert_ne!(id(&keyed(&other, one, "k1", &request).json()), first);
    // Concurrent requests with one key also create only one execution.
    let all: Vec<String> = thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| id(&keyed(&client, one, "k2", &request).json())))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(all.iter().all(|id| *id == all[0]), "{all:?}");
    let several = json!({"executions": [shell("echo a"), shell("echo b")]});
    let ids = |response: &testkit::Response| -> Vec<String> {
        assert_eq!(response.status, 202, "{}", response.text());
        response.json()["executions"].as_array().unwrap().iter().map(id).collect()
    };
    let first = ids(&keyed(&client, batch, "k3", &several));
    assert_eq!(ids(&keyed(&client, batch, "k3", &several)), first);
    let changed = json!({"executions": [shell("echo a"), shell("echo c")]});
    let changed = keyed(&client, batch, "k3", &changed);
    assert_error(&changed, 409, "conflict", field);
    let long = "x".repeat(256);
    for key in ["", &long, "\u{e4}"] {
        assert_error(&keyed(&client, one, key, &request), 400, "invalid_request", field);
    }
    let twice = post_request(one, &request).header("idempotency-key", "a");
    let twice = client.send(&twice.header("idempotency-key", "b"));
    assert_error(&twice, 400, "invalid_request", field);
    assert_eq!(walk(&client, "limit=200").len(), 1 + 1 + 2);
}

#[test]
fn a_batch_is_accepted_whole_or_not_at_all() {
    let _guard = beside_others();
    let server = serve_with("jobs.batch_max = 3\n");
    let client = server.client();
    let good = || shell("true");
    let target = "/v1/executions/batch";
    for (executions, field) in [
        (json!([]), "executions"),
        (json!([good(), good(), good(), good()]), "executions"),
        (json!([{"argv": []}]), "executions[0].argv"),
        (json!([good(), {"argv": []}]), "executions[1].argv"),
        (json!([good(), good(), {"language": "cobol", "source": ""}]), "executions[2].language"),
        (json!([good(), {"argv": ["true"], "priority": -101}]), "executions[1].priority"),
        (json!([good(), {"argv": "true"}]), "executions[1].argv"),
        (json!([good(), {"argv": ["a"], "limit": {}}]), "executions[1].limit"),
        (
            json!([good(), {"argv": ["a"], "webhook": {"url": "http://10.0.0.1/"}}]),
            "executions[1].webhook.url",
        ),
    ] {
        let response = post(&client, target, &json!({"executions": executions}));
        assert_eq!(response.status, 400, "{executions}: {}", response.text());
        assert_eq!(response.json()["error"]["field"], field, "{executions} {}", response.text());
    }
    assert_eq!(walk(&client, "").len(), 0);
    let ids = submit_all(&client, &[shell("echo 0"), shell("echo 1"), shell("echo 2")]);
    for (number, id) in ids.iter().enumerate() {
        assert_eq!(ended(&client, id)["result"]["stdout"], format!("{number}\n"));
    }
}

#[test]
fn priorities_and_age_decide_who_starts_first() {
    let _guard = beside_others();
    let server = serve_with("running_max = 1\njobs.ageing_s = 1\n");
    let client = server.client();
    set_paused(&client, true);
    let queue = |priority: i32| {
        let mut request = shell("true");
        request["priority"] = json!(priority);
        submit(&client, &request)
    };
    let old = queue(0);
    // A little more than three steps of ageing.
    until("age", SOON, || {
        let figures = figures(&client);
        let age = figures["oldest_queued_ms"].as_u64().unwrap();
        if age > 3_200 { Ok(()) } else { Err(figures.to_string()) }
    });
    let (low, young, urgent, first, second) =
        (queue(-50), queue(2), queue(80), queue(40), queue(40));
    let order = [urgent, first, second, old, young, low];
    for (place, id) in order.iter().enumerate() {
        // A worker may hold one for a moment before it finds that nothing may start.
        until("its place", SOON, || {
            let record = record(&client, id);
            if record["position"] == place { Ok(()) } else { Err(record.to_string()) }
        });
    }
    set_paused(&client, false);
    let starts: Vec<String> = order
        .iter()
        .map(|id| ended(&client, id)["started_at"].as_str().unwrap().to_owned())
        .collect();
    let mut sorted = starts.clone();
    sorted.sort();
    assert_eq!(starts, sorted);
}

#[test]
fn what_waits_too_long_expires_and_is_told_where_it_stands() {
    let _guard = beside_others();
    let server = serve_with("running_max = 1\n");
    let client = server.client();
    set_paused(&client, true);
    let first = submit(&client, &shell("true"));
    // A worker may hold it for a moment before it finds that nothing may start.
    until("its place", SOON, || {
        let record = record(&client, &first);
        if record["position"] == 0 { Ok(()) } else { Err(record.to_string()) }
    });
    assert_eq!(record(&client, &first)["estimated_start_ms"], Value::Null);
    set_paused(&client, false);
    assert_eq!(ended(&client, &first)["position"], Value::Null);
    set_paused(&client, true);
    let waiting = submit_all(&client, &[shell("true"), shell("true"), shell("true")]);
    let mut last = 0;
    for (place, id) in waiting.iter().enumerate() {
        // As above.
        let mut seen = Value::Null;
        until("its place", SOON, || {
            seen = record(&client, id);
            if seen["position"] == place { Ok(()) } else { Err(seen.to_string()) }
        });
        let estimate = seen["estimated_start_ms"].as_u64().unwrap();
        assert!(estimate >= last, "{seen}");
        last = estimate;
    }
    let mut request = shell("echo never");
    request["deadline_ms"] = json!(200);
    let late = submit(&client, &request);
    let record = ended(&client, &late);
    assert_eq!((&record["state"], &record["attempts"]), (&json!("expired"), &json!(0)), "{record}");
    assert_eq!(record["result"], Value::Null);
    let last = client.events(&format!("{}/events", path(&late))).unwrap().last().unwrap();
    assert_eq!((&*last.name, &last.data["state"]), ("ended", &json!("expired")));
    set_paused(&client, false);
    // Started in time: the deadline applies to the start.
    request = shell("sleep 0.5; echo done");
    request["deadline_ms"] = json!(60_000);
    let record = ended(&client, &submit(&client, &request));
    assert_eq!(record["result"]["stdout"], "done\n");
}

#[test]
fn results_are_forgotten_when_their_time_is_over() {
    let _guard = beside_others();
    let server = serve_with("jobs.keep_s = 3\n");
    let client = server.client();
    let id = submit(&client, &shell("true"));
    assert_eq!(ended(&client, &id)["state"], "finished");
    until("it to be forgotten", SOON, || {
        let response = client.get(&path(&id));
        if response.status == 404 { Ok(()) } else { Err(response.text()) }
    });
    assert_eq!(walk(&client, "").len(), 0);
    assert_eq!(figures(&client)["finished"], 0);
    let events = client.events(&format!("{}/events", path(&id)));
    assert_eq!(events.map(|_| ()).unwrap_err().status, 404);
}

#[test]
fn tenants_know_nothing_of_each_other() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let (one, two) = (server.other_client("one", &[]), server.other_client("two", &[]));
    let done = submit(&one, &shell("echo secret"));
    ended(&one, &done);
    set_paused(&client, true);
    let waiting = submit(&one, &shell("true"));
    for id in [&done, &waiting] {
        for (method, suffix) in [
            ("GET", ""),
            ("GET", "?wait=true"),
            ("DELETE", ""),
            ("GET", "/events"),
            ("POST", "/retry"),
        ] {
            let request = Request::new(method, &format!("{}{suffix}", path(id)));
            // Operators may manage the queue, but not executions of other tenants.
            for stranger in [&two, &client] {
                assert_error(&stranger.send(&request), 404, "not_found", None);
            }
            let response = one.anonymous().send(&request);
            assert_error(&response, 401, "unauthenticated", None);
        }
        let opened = two.websocket(&format!("{}/events", path(id)));
        assert_eq!(opened.map(|_| ()).unwrap_err().status, 404);
    }
    assert_eq!(walk(&two, "limit=200"), Vec::<String>::new());
    let cursor = "/v1/executions?cursor=ex_7ZZZZZZZZZZZZZZZZZZZZZZZZZ";
    assert_eq!(two.get(cursor).json()["executions"], json!([]));
    let stats = figures(&two);
    assert_eq!((&stats["queued"], &stats["finished"]), (&json!(0), &json!(0)), "{stats}");
    assert_eq!(post(&two, "/v1/queue/drain", &Value::Null).json()["changed"], 0);
    assert_eq!(record(&one, &waiting)["state"], "queued");
    assert_eq!(figures(&one)["queued"], 1);
    set_paused(&client, false);
    assert_eq!(ended(&one, &waiting)["state"], "finished");
}

#[test]
fn operators_have_the_whole_queue_and_others_their_own() {
    let _guard = beside_others();
    let server = serve();
    let operator = server.other_client("operator", &["--operator"]);
    let plain = server.other_client("plain", &[]);
    for verb in ["pause", "resume", "drain?all=true", "retry?all=true"] {
        let response = post(&plain, &format!("/v1/queue/{verb}"), &Value::Null);
        assert_error(&response, 403, "forbidden", None);
    }
    assert_error(&plain.get("/v1/queue?all=true"), 403, "forbidden", None);
    assert_error(&plain.anonymous().get("/v1/queue"), 401, "unauthenticated", None);
    set_paused(&operator, true);
    let own = submit_all(&plain, &[shell("true"), shell("true")]);
    let others = submit(&operator, &shell("true"));
    let all = operator.get("/v1/queue?all=true").json();
    assert_eq!((&all["queued"], &all["tenants_waiting"]), (&json!(3), &json!(2)), "{all}");
    assert_eq!((&all["backend"], &all["paused"]), (&json!("sqlite"), &json!(true)), "{all}");
    assert_eq!(figures(&plain)["queued"], 2);
    assert_eq!(post(&plain, "/v1/queue/drain", &Value::Null).json()["changed"], 2);
    for id in &own {
        let record = ended(&plain, id);
        assert_eq!((&record["state"], &record["attempts"]), (&json!("cancelled"), &json!(0)));
    }
    let more = submit(&plain, &shell("true"));
    let drained = post(&operator, "/v1/queue/drain?all=true", &Value::Null);
    assert_eq!(drained.json()["changed"], 2, "{}", drained.text());
    assert_eq!(record(&operator, &others)["state"], "cancelled");
    assert_eq!(record(&plain, &more)["state"], "cancelled");
    set_paused(&operator, false);
    assert_eq!(post(&plain, "/v1/queue/retry", &Value::Null).json()["changed"], 0);
    let retried = post(&plain, &format!("{}/retry", path(&more)), &Value::Null);
    assert_error(&retried, 409, "conflict", None);
}

#[test]
fn a_full_queue_refuses_and_does_not_grow() {
    let _guard = alone_on_host();
    let server = serve_with("jobs.queued_max = 5\njobs.queued_max_per_tenant = 4\n");
    let client = server.client();
    let other = server.other_client("other", &[]);
    set_paused(&client, true);
    let kept = submit_all(&client, &[shell("true"), shell("true"), shell("true"), shell("true")]);
    let refused = |client: &Client, status, code| {
        let response = post(client, "/v1/executions", &shell("true"));
        assert_error(&response, status, code, None);
        assert!(response.header("retry-after").is_some(), "{:?}", response.headers);
        assert_eq!(response.json()["error"]["retry"], true);
    };
    refused(&client, 429, "too_many_requests");
    let last = submit(&other, &shell("true"));
    refused(&other, 503, "overloaded");
    // Large requests: batches of a hundred, and some sent individually.
    let large = json!({"argv": ["cat"], "stdin": "x".repeat(4 << 10)});
    let batch = json!({"executions": vec![large.clone(); 100]});
    let flood = |batches: usize, singles: usize| {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..batches {
                        let response = post(&other, "/v1/executions/batch", &batch);
                        assert_eq!(response.status, 503, "{}", response.text());
                    }
                    for _ in 0..singles {
                        let response = post(&other, "/v1/executions", &large);
                        assert_eq!(response.status, 503, "{}", response.text());
                    }
                });
            }
        });
    };
    flood(2, 25);
    let before = process::resident_bytes(server.pid());
    flood(22, 300);
    let grown = process::resident_bytes(server.pid()).saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes more after 10,000 refusals");
    set_paused(&client, false);
    for id in &kept {
        assert_eq!(ended(&client, id)["state"], "finished");
    }
    assert_eq!(ended(&other, &last)["state"], "finished");
    assert_eq!(figures(&other)["finished"], 1);
}
