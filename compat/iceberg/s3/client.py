"""A warehouse in a bucket of a store that enforces session policies.

BASE is the catalog's address, TOKEN an operator's, STORE the store's with the key KEY and SECRET.
Credentials of one table open that table and no other, the signer signs for one table and no other,
and PyIceberg writes and reads with either. Ends with `ok`, or says what is wrong.
"""

import json
import os
import urllib.error
import urllib.request

import botocore.session
import pyarrow as pa
from botocore.exceptions import ClientError
from pyiceberg.catalog import load_catalog

BASE, TOKEN = os.environ["BASE"], os.environ["TOKEN"]
STORE, KEY, SECRET = os.environ["STORE"], os.environ["KEY"], os.environ["SECRET"]
BUCKET = "lake"
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})


def ask(method, path, body=None, headers=None, token=TOKEN):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{BASE}{path}", data, headers or {}, method=method)
    request.add_header("authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request) as response:
            text = response.read()
            return response.status, json.loads(text) if text else None
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def good(method, path, body=None, headers=None, token=TOKEN):
    status, answer = ask(method, path, body, headers, token)
    assert status < 300, (method, path, status, answer)
    return answer


def store(key, secret, session=None):
    return botocore.session.Session().create_client(
        "s3", region_name="us-east-1", endpoint_url=STORE,
        aws_access_key_id=key, aws_secret_access_key=secret, aws_session_token=session)


def denied(act):
    try:
        act()
    except ClientError as error:
        assert error.response["Error"]["Code"] == "AccessDenied", error
        return
    raise AssertionError("the store was to refuse it")


def key_of(location):
    return location.removeprefix(f"s3://{BUCKET}/")


def catalog(way, token=TOKEN):
    return load_catalog("cove", **{
        "type": "rest", "uri": BASE, "token": token, "warehouse": "bucket",
        "header.X-Iceberg-Access-Delegation": way,
        "py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"})


def vended(table, token=TOKEN):
    path = f"/v1/bucket/namespaces/n/tables/{table}"
    loaded = good("GET", path, None, {"X-Iceberg-Access-Delegation": "vended-credentials"}, token)
    given = loaded["storage-credentials"][0]
    assert given["prefix"] == loaded["metadata"]["location"], given["prefix"]
    assert SECRET not in json.dumps(loaded)
    again = good("GET", f"{path}/credentials", token=token)
    assert again["storage-credentials"][0] == given
    config = given["config"]
    client = store(config["s3.access-key-id"], config["s3.secret-access-key"],
                   config["s3.session-token"])
    return client, key_of(loaded["metadata"]["location"]), key_of(loaded["metadata-location"])


def policies(reader):
    (a, place, file), (b, other, other_file) = vended("a"), vended("b")
    assert a.get_object(Bucket=BUCKET, Key=file)["Body"].read()
    assert b.get_object(Bucket=BUCKET, Key=other_file)["Body"].read()
    a.put_object(Bucket=BUCKET, Key=f"{place}/data/x", Body=b"x")
    a.list_objects_v2(Bucket=BUCKET, Prefix=f"{place}/")
    denied(lambda: a.get_object(Bucket=BUCKET, Key=other_file))
    denied(lambda: a.put_object(Bucket=BUCKET, Key=f"{other}/data/x", Body=b"x"))
    denied(lambda: a.delete_object(Bucket=BUCKET, Key=other_file))
    denied(lambda: a.list_objects_v2(Bucket=BUCKET, Prefix=f"{other}/"))
    denied(lambda: a.list_objects_v2(Bucket=BUCKET))
    denied(lambda: a.copy_object(Bucket=BUCKET, Key=f"{place}/data/y",
                                 CopySource={"Bucket": BUCKET, "Key": other_file}))
    a.delete_object(Bucket=BUCKET, Key=f"{place}/data/x")
    # Who may read cannot write.
    r, place, file = vended("a", reader)
    assert r.get_object(Bucket=BUCKET, Key=file)["Body"].read()
    denied(lambda: r.put_object(Bucket=BUCKET, Key=f"{place}/data/x", Body=b"x"))
    denied(lambda: r.delete_object(Bucket=BUCKET, Key=file))


def signer(reader):
    place, other = (key_of(good("GET", f"/v1/bucket/namespaces/n/tables/{table}")
                           ["metadata"]["location"]) for table in "ab")

    def sign(method, target, headers=None, token=TOKEN):
        body = {"region": "us-east-1", "method": method, "uri": f"{STORE}/{BUCKET}{target}",
                "headers": headers or {}}
        return ask("POST", "/v1/bucket/namespaces/n/tables/a/sign", body, token=token)

    def send(method, signed, data=None, more=None):
        headers = {name: values[0] for name, values in signed["headers"].items()} | (more or {})
        request = urllib.request.Request(signed["uri"], data, headers, method=method)
        try:
            with urllib.request.urlopen(request) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    status, signed = sign("PUT", f"/{place}/data/a%20b")
    assert status == 200, signed
    assert send("PUT", signed, b"hello")[0] == 200
    status, signed = sign("GET", f"/{place}/data/a%20b", token=reader)
    assert status == 200 and send("GET", signed) == (200, b"hello")
    # What is added to a signed request is not done either.
    status, signed = sign("PUT", f"/{place}/data/stolen")
    theirs = next(it["Key"] for it in store(KEY, SECRET)
                  .list_objects_v2(Bucket=BUCKET, Prefix=other)["Contents"])
    status, text = send("PUT", signed, b"", {"x-amz-copy-source": f"/{BUCKET}/{theirs}"})
    assert status == 403, (status, text)
    for method, target, headers in [
        ("GET", f"/{other}/x", {}), ("GET", f"/{place}/../{other}/x", {}),
        ("GET", f"/{place}/%2e%2e/x", {}), ("GET", f"/{place}//x", {}),
        ("GET", f"/{place}/x?acl", {}), ("GET", "?list-type=2&prefix=", {}),
        ("PUT", f"/{place}/x", {"x-amz-copy-source": [f"/{BUCKET}/{theirs}"]}),
        ("PUT", f"/{place}/x", {"x-amz-acl": ["public-read"]}),
    ]:
        status, answer = sign(method, target, headers)
        assert status == 403, (method, target, status, answer)
    assert sign("PUT", f"/{place}/x", token=reader)[0] == 403


def clients():
    for way in ["vended-credentials", "remote-signing"]:
        name = way.split("-")[0]
        table = catalog(way).create_table(f"n.{name}", ROWS.schema)
        table.append(ROWS)
        table.append(ROWS)
        found = catalog(way).load_table(f"n.{name}").scan().to_arrow()
        assert sorted(found["id"].to_pylist()) == [1, 1, 2, 2, 3, 3], found
        has = catalog(way).load_table(f"n.{name}").io.properties
        assert ("s3.session-token" in has) == (way == "vended-credentials"), way
        print(way, flush=True)


def main():
    store(KEY, SECRET).create_bucket(Bucket=BUCKET)
    good("POST", "/management/v1/warehouses", {
        "name": "bucket", "root": f"s3://{BUCKET}/w",
        "storage": {"endpoint": STORE, "vended-credentials": True, "remote-signing": True},
        "credentials": {"access-key-id": KEY, "secret-access-key": SECRET}})
    made = good("POST", "/management/v1/clients", {"name": "reader"})
    good("POST", "/management/v1/bucket/grants",
         {"principal": f"client:{made['client-id']}", "rights": ["read"]})
    form = (f"grant_type=client_credentials&client_id={made['client-id']}"
            f"&client_secret={made['client-secret']}").encode()
    with urllib.request.urlopen(f"{BASE}/v1/oauth/tokens", form) as response:
        reader = json.load(response)["access_token"]
    good("POST", "/v1/bucket/namespaces", {"namespace": ["n"]})
    schema = {"type": "struct", "fields": [
        {"id": 1, "name": "id", "required": False, "type": "long"}]}
    for table in "ab":
        good("POST", "/v1/bucket/namespaces/n/tables", {"name": table, "schema": schema})
    policies(reader)
    signer(reader)
    clients()
    # Nothing is left of a table that is purged.
    good("DELETE", "/v1/bucket/namespaces/n/tables/vended?purgeRequested=true")
    print("ok")


main()
