"""Tenants of the bouncer, and the catalog."""

from __future__ import annotations

import os
import uuid

import pytest
from pyiceberg.catalog import load_catalog

from cove import Cove, errors
from cove.types import TenantSpec


def test_a_tenant_is_made_used_paused_and_removed(cove: Cove) -> None:
    name = f"books-{uuid.uuid4().hex[:8]}"
    spec: TenantSpec = {
        "name": name,
        "server": os.environ["COVE_TEST_POSTGRES"],
        "database": "postgres",
        "users": [{"name": "clerk", "password": os.environ["COVE_TEST_PASSWORD"]}],
    }
    tenant = cove.tenants.create(**spec)
    try:
        assert tenant["spec"]["server"] == spec["server"]  # pyright: ignore[reportTypedDictNotRequiredAccess]
        assert name in {it["spec"].get("name") for it in cove.tenants.list()}
        with cove.session(grants=[{"kind": "postgres", "tenant": name}]) as session:
            assert session.query(f"postgres:{name}", "SELECT 6 * 7")["rows"] == [[42]]
        assert cove.tenants.stats(name)["queries"] >= 1
        assert name in {it["name"] for it in cove.tenants.all_stats()["tenants"]}
        assert cove.tenants.clients(name)["clients"] == []
        assert isinstance(cove.tenants.servers(name)["servers"], list)
        assert cove.tenants.pins(name)["clients"] == []
        assert cove.tenants.health(name)["health"] in ("healthy", "unknown")
        assert cove.tenants.pause(name)["admission"] == "paused"
        assert cove.tenants.pause(name, refuse=True)["admission"] == "refusing"
        assert cove.tenants.resume(name)["admission"] == "open"
        cove.tenants.reconnect(name)
        cove.tenants.kill(name)
        limited: TenantSpec = {**spec, "limits": {"clients_max": 3}}
        assert cove.tenants.replace(name, limited)["spec"].get("limits", {}).get("clients_max") == 3
        assert cove.tenants.drain(name)["admission"] == "draining"
        with pytest.raises(errors.NotFoundError):
            cove.tenants.kill_client(name, 1)
        with pytest.raises(errors.ConflictError):
            cove.tenants.create(**spec)
        assert cove.tenants.reload()["tenants"] >= 1
    finally:
        cove.tenants.delete(name)
    with pytest.raises(errors.NotFoundError):
        cove.tenants.get(name)


def test_pyiceberg_opens_the_catalog_with_these_settings(cove: Cove) -> None:
    space = f"space_{uuid.uuid4().hex[:8]}"
    catalog = load_catalog("cove", **cove.catalog.pyiceberg())
    catalog.create_namespace(space)
    assert (space,) in catalog.list_namespaces()

    client = cove.catalog.create_client("sdk")
    try:
        credential = f"{client['client-id']}:{client['client-secret']}"
        (warehouse,) = cove.catalog.warehouses()
        house = cove.catalog.warehouse(warehouse["name"])
        house.grant({"principal": client["principal"], "namespace": [space], "rights": ["read"]})
        other = load_catalog("other", **cove.catalog.pyiceberg(credential=credential))
        assert other.list_namespaces() == [(space,)]
        key = cove.catalog.create_key(client["client-id"], "ci", expires_seconds=600)
        assert [it["name"] for it in cove.catalog.keys(client["client-id"])] == ["ci"]
        assert cove.catalog.rotate_key(client["client-id"], key["key-id"])["key"] != key["key"]
        cove.catalog.delete_key(client["client-id"], key["key-id"])
        rotated = cove.catalog.rotate_client(client["client-id"], grace_seconds=5)
        assert rotated["client-secret"] != client["client-secret"]
        assert client["principal"] in {it["principal"] for it in house.grants()}
        house.revoke({"principal": client["principal"], "namespace": [space], "rights": ["read"]})
    finally:
        cove.catalog.delete_client(client["client-id"])
        catalog.drop_namespace(space)


def test_the_catalog_is_managed(cove: Cove) -> None:
    (warehouse,) = cove.catalog.warehouses()
    house = cove.catalog.warehouse(warehouse["name"])
    assert house.get()["name"] == warehouse["name"]
    assert isinstance(house.search("x")["results"], list)
    assert house.dropped().to_list() == []
    assert house.policies() == []
    assert house.set_retention(3600) == 3600
    assert house.retention() == 3600
    changes = house.changes()
    assert changes["newest"] >= 0
    job = house.start_job({"actions": ["expire-snapshots"], "dry-run": True})
    assert house.job(job, items=True)["dry-run"]
    assert job in {it["id"] for it in house.jobs()}
    role = f"role-{uuid.uuid4().hex[:8]}"
    cove.catalog.create_role(role, ["tenant:bi"])
    cove.catalog.change_role(role, add=["tenant:etl"], remove=["tenant:bi"])
    members = {it["name"]: it["members"] for it in cove.catalog.roles()}
    assert members[role] == ["tenant:etl"]
    cove.catalog.delete_role(role)
    assert cove.catalog.audit(outcome="done").first() is not None
    with pytest.raises(errors.NotFoundError) as caught:
        cove.catalog.warehouse("nowhere").get()
    assert caught.value.code
    with pytest.raises(errors.APIError):
        house.undrop({"name": "x", "namespace": ["nowhere"]})


def test_a_server_reads_its_settings_again_and_is_copied(cove: Cove) -> None:
    assert cove.reload() == {"taken_over": [], "restart_needed_for": []}
    with cove.backup() as pieces:
        assert next(pieces).startswith(b"\x1f\x8b")


def test_settings_for_spark_and_duckdb_name_the_address_and_the_secret() -> None:
    with Cove("http://lake.example:4100", "tok'en") as cove:
        assert cove.catalog.spark("lake", "main") == {
            "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.lake.type": "rest",
            "spark.sql.catalog.lake.uri": "http://lake.example:4100/catalog",
            "spark.sql.catalog.lake.token": "tok'en",
            "spark.sql.catalog.lake.warehouse": "main",
        }
        secret, attach = cove.catalog.duckdb("main", "lake")
        assert secret == "CREATE OR REPLACE SECRET \"lake_secret\" (TYPE iceberg, TOKEN 'tok''en')"
        assert attach == (
            "ATTACH 'main' AS \"lake\" (TYPE iceberg, ENDPOINT 'http://lake.example:4100/catalog', "
            'SECRET "lake_secret")'
        )
        oauth = cove.catalog.duckdb("main", credential="id:se:cret")[0]
        assert "CLIENT_ID 'id', CLIENT_SECRET 'se:cret'" in oauth
        assert "OAUTH2_SERVER_URI 'http://lake.example:4100/catalog/v1/oauth/tokens'" in oauth
