"""Settings with which other clients reach the catalog."""

from __future__ import annotations

_SPARK_CATALOG = "org.apache.iceberg.spark.SparkCatalog"


def pyiceberg(
    uri: str, token: str | None, credential: str | None, warehouse: str | None
) -> dict[str, str]:
    """Properties for PyIceberg's `load_catalog`."""
    found = {"type": "rest", "uri": uri}
    if credential is not None:
        found["credential"] = credential
        found["oauth2-server-uri"] = f"{uri}/v1/oauth/tokens"
    elif token is not None:
        found["token"] = token
    if warehouse is not None:
        found["warehouse"] = warehouse
    return found


def spark(
    uri: str, token: str | None, credential: str | None, warehouse: str | None, name: str
) -> dict[str, str]:
    """Configuration of a Spark session with the catalog under this name."""
    prefix = f"spark.sql.catalog.{name}"
    found = {f"{prefix}": _SPARK_CATALOG}
    properties = pyiceberg(uri, token, credential, warehouse)
    found.update({f"{prefix}.{key}": value for key, value in properties.items()})
    return found


def duckdb(
    uri: str, token: str | None, credential: str | None, warehouse: str, name: str
) -> list[str]:
    """Statements for DuckDB with its extension `iceberg`."""
    if credential is not None:
        client, _, secret = credential.partition(":")
        server = f"{uri}/v1/oauth/tokens"
        known = f"CLIENT_ID {_text(client)}, CLIENT_SECRET {_text(secret)}, "
        known += f"OAUTH2_SERVER_URI {_text(server)}"
    else:
        known = f"TOKEN {_text(token or '')}"
    secret_name = _name(f"{name}_secret")
    return [
        f"CREATE OR REPLACE SECRET {secret_name} (TYPE iceberg, {known})",
        f"ATTACH {_text(warehouse)} AS {_name(name)} "
        f"(TYPE iceberg, ENDPOINT {_text(uri)}, SECRET {secret_name})",
    ]


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _name(value: str) -> str:
    return '"' + value.replace('"', '""') + '"'
