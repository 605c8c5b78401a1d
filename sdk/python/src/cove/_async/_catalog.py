"""The Iceberg catalog: settings for its clients, and its management.

Namespaces, tables and views are for clients of Iceberg's REST interface, which are many.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from .. import _catalog
from .. import _operations as ops
from ._streams import AsyncPager
from ._transport import AsyncTransport

if TYPE_CHECKING:
    from .. import types


class AsyncWarehouse:
    """Management of one warehouse."""

    def __init__(self, transport: AsyncTransport, name: str) -> None:
        self._transport = transport
        self.name = name

    @property
    def _at(self) -> dict[str, str | int]:
        return {"prefix": self.name}

    async def get(self) -> types.CatalogWarehouse:
        """What it is."""
        return await self._transport.call(ops.GET_WAREHOUSE, {"warehouse": self.name})

    async def update(self, changes: types.CatalogWarehouseUpdate) -> types.CatalogWarehouse:
        """Changes status, locations, storage or credentials."""
        return await self._transport.call(
            ops.UPDATE_WAREHOUSE, {"warehouse": self.name}, json=changes
        )

    async def delete(self, *, force: bool = False) -> None:
        """Removes it when it has no namespace. No file is removed."""
        await self._transport.call(
            ops.DELETE_WAREHOUSE, {"warehouse": self.name}, query={"force": force or None}
        )

    async def search(self, text: str, *, limit: int | None = None) -> types.CatalogFoundNames:
        """Namespaces, tables, views and columns with this in their names."""
        return await self._transport.call(
            ops.SEARCH_CATALOG, self._at, query={"q": text, "limit": limit}
        )

    async def health(
        self,
        namespace: Sequence[str],
        table: str,
        *,
        snapshot_id: int | None = None,
        ref: str | None = None,
        as_of: str | None = None,
    ) -> types.CatalogTableHealth:
        """Sizes of a table's files, deleted rows, partitions, and what should be done."""
        at: dict[str, str | int] = {**self._at, "table": table, "namespace": _levels(namespace)}
        query = {"snapshot-id": snapshot_id, "ref": ref, "as-of": as_of}
        return await self._transport.call(ops.GET_TABLE_HEALTH, at, query=query)

    def inspect(
        self,
        namespace: Sequence[str],
        table: str,
        aspect: str,
        *,
        snapshot_id: int | None = None,
        as_of: str | None = None,
    ) -> AsyncPager[dict[str, Any]]:
        """Rows about a table, such as its `snapshots`, `files` or `history`."""
        at: dict[str, str | int] = {**self._at, "table": table, "aspect": aspect}
        at["namespace"] = _levels(namespace)

        async def fetch(token: str | None) -> types.CatalogRowsPage:
            query = {"snapshot-id": snapshot_id, "as-of": as_of, "pageToken": token}
            return await self._transport.call(ops.INSPECT_TABLE, at, query=query)

        return AsyncPager(fetch, items="rows", following="next-page-token")

    async def changes(
        self,
        after: int | None = None,
        *,
        namespace: Sequence[str] | None = None,
        table: str | None = None,
        limit: int | None = None,
    ) -> types.CatalogChangePage:
        """What was changed after a number; `next-after` goes on."""
        query = {
            "after": after,
            "namespace": None if namespace is None else _levels(namespace),
            "table": table,
            "limit": limit,
        }
        return await self._transport.call(ops.LIST_CATALOG_CHANGES, self._at, query=query)

    async def grants(self, principal: str | None = None) -> list[types.CatalogGrant]:
        """Rights that were given in it."""
        answer = await self._transport.call(
            ops.LIST_CATALOG_GRANTS, self._at, query={"principal": principal}
        )
        return answer["grants"]

    async def grant(self, grant: types.CatalogGrant) -> None:
        """Gives rights."""
        await self._transport.call(ops.GRANT_CATALOG_RIGHTS, self._at, json=grant)

    async def revoke(self, grant: types.CatalogGrant) -> None:
        """Takes rights back."""
        await self._transport.call(ops.REVOKE_CATALOG_RIGHTS, self._at, json=grant)

    async def policies(self) -> list[types.CatalogPolicy]:
        """Policies of rows and columns."""
        return (await self._transport.call(ops.LIST_CATALOG_POLICIES, self._at))["policies"]

    async def put_policy(
        self, name: str, policy: types.CatalogPolicyRequest
    ) -> types.CatalogPolicy:
        """Makes or replaces a policy."""
        return await self._transport.call(
            ops.PUT_CATALOG_POLICY, {**self._at, "policy": name}, json=policy
        )

    async def preview_policy(
        self, name: str, principal: str, policy: types.CatalogPolicyRequest
    ) -> types.CatalogPolicyPreview:
        """What a principal reads of the table now, and would with a policy, which is not saved."""
        return await self._transport.call(
            ops.PREVIEW_CATALOG_POLICY,
            {**self._at, "policy": name},
            json={"principal": principal, "policy": policy},
        )

    async def delete_policy(self, name: str) -> None:
        """Removes a policy."""
        await self._transport.call(ops.DELETE_CATALOG_POLICY, {**self._at, "policy": name})

    def dropped(self, namespace: Sequence[str] | None = None) -> AsyncPager[types.CatalogDropped]:
        """Tables and views that were dropped and can come back."""
        chosen = None if namespace is None else _levels(namespace)

        async def fetch(token: str | None) -> types.CatalogDroppedList:
            query = {"namespace": chosen, "pageToken": token}
            return await self._transport.call(ops.LIST_DROPPED, self._at, query=query)

        return AsyncPager(fetch, items="dropped", following="next-page-token")

    async def undrop(self, which: types.CatalogUndropRequest) -> types.CatalogUndropped:
        """Brings one back."""
        return await self._transport.call(ops.UNDROP, self._at, json=which)

    async def purge(self, dropped: str) -> None:
        """Removes one for ever, with its files."""
        await self._transport.call(ops.PURGE_DROPPED, {**self._at, "dropped": dropped})

    async def retention(self) -> int:
        """Seconds for which what is dropped is kept."""
        return (await self._transport.call(ops.GET_RETENTION, self._at))["undrop-seconds"]

    async def set_retention(self, seconds: int | None) -> int:
        """Sets that; `None` for the server's."""
        answer = await self._transport.call(
            ops.SET_RETENTION, self._at, json={"undrop-seconds": seconds}
        )
        return answer["undrop-seconds"]

    async def protection(
        self, namespace: Sequence[str], name: str | None = None
    ) -> types.CatalogProtection:
        """Whether a namespace, table or view may be dropped."""
        return await self._transport.call(
            ops.GET_PROTECTION, self._at, query={"namespace": _levels(namespace), "name": name}
        )

    async def protect(
        self, namespace: Sequence[str], name: str | None = None, *, protected: bool = True
    ) -> types.CatalogProtection:
        """Has it refuse to be dropped, or not any more."""
        body: dict[str, Any] = {"namespace": list(namespace), "protected": protected}
        if name is not None:
            body["name"] = name
        return await self._transport.call(ops.SET_PROTECTION, self._at, json=body)

    async def put_function(self, function: types.CatalogFunctionRequest) -> dict[str, Any]:
        """Makes or replaces a function."""
        response = await self._transport.send(ops.PUT_FUNCTION, self._at, json=function)
        document: dict[str, Any] = response.json()
        return document

    async def drop_function(self, namespace: Sequence[str], function: str) -> None:
        """Removes a function."""
        at = {**self._at, "namespace": _levels(namespace), "function": function}
        await self._transport.call(ops.DROP_FUNCTION, at)

    async def start_job(self, job: types.CatalogJobRequest) -> str:
        """Starts maintenance; the id of the job."""
        return (await self._transport.call(ops.START_CATALOG_JOB, self._at, json=job))["id"]

    async def jobs(self) -> list[types.CatalogJob]:
        """Jobs of maintenance."""
        return (await self._transport.call(ops.LIST_CATALOG_JOBS, self._at))["jobs"]

    async def job(self, job: str, *, items: bool = False) -> types.CatalogJob:
        """One job; with `items` also what it removes."""
        return await self._transport.call(
            ops.GET_CATALOG_JOB, {**self._at, "job": job}, query={"items": items or None}
        )

    async def cancel_job(self, job: str) -> None:
        """Ends a job."""
        await self._transport.call(ops.CANCEL_CATALOG_JOB, {**self._at, "job": job})


class AsyncCatalog:
    """Settings for clients of the catalog, and `/catalog/management/v1`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    @property
    def uri(self) -> str:
        """Address of Iceberg's REST interface, for every client of it."""
        return f"{self._transport.url}/catalog"

    def pyiceberg(
        self, warehouse: str | None = None, *, credential: str | None = None
    ) -> dict[str, str]:
        """Properties for PyIceberg: `load_catalog("cove", **cove.catalog.pyiceberg())`.

        They hold this client's token, or the `credential` (`ID:SECRET`) of a catalog client.
        """
        return _catalog.pyiceberg(self.uri, self._transport.token, credential, warehouse)

    def spark(
        self, name: str = "cove", warehouse: str | None = None, *, credential: str | None = None
    ) -> dict[str, str]:
        """Configuration of a Spark session that has the catalog under this name."""
        return _catalog.spark(self.uri, self._transport.token, credential, warehouse, name)

    def duckdb(
        self, warehouse: str, name: str = "cove", *, credential: str | None = None
    ) -> list[str]:
        """Statements after which DuckDB has a warehouse under this name (`LOAD iceberg` first)."""
        return _catalog.duckdb(self.uri, self._transport.token, credential, warehouse, name)

    def warehouse(self, name: str) -> AsyncWarehouse:
        """Management of a warehouse; asks nothing."""
        return AsyncWarehouse(self._transport, name)

    async def warehouses(self) -> list[types.CatalogWarehouse]:
        """Warehouses that this token may manage."""
        return (await self._transport.call(ops.LIST_WAREHOUSES))["warehouses"]

    async def create_warehouse(self, request: types.CatalogWarehouseRequest) -> AsyncWarehouse:
        """Makes a warehouse. For operators."""
        made = await self._transport.call(ops.CREATE_WAREHOUSE, json=request)
        return AsyncWarehouse(self._transport, made["name"])

    async def clients(self) -> list[types.CatalogClient]:
        """Clients of the catalog's own, without secrets."""
        return (await self._transport.call(ops.LIST_CATALOG_CLIENTS))["clients"]

    async def create_client(
        self, name: str, *, operator: bool = False
    ) -> types.CatalogClientSecret:
        """Makes a client; its secret is told this once."""
        return await self._transport.call(
            ops.CREATE_CATALOG_CLIENT, json={"name": name, "operator": operator}
        )

    async def rotate_client(
        self, client: str, *, grace_seconds: int = 0
    ) -> types.CatalogClientSecret:
        """Gives a client another secret."""
        return await self._transport.call(
            ops.ROTATE_CATALOG_CLIENT, {"client": client}, json={"grace-seconds": grace_seconds}
        )

    async def delete_client(self, client: str) -> None:
        """Removes a client with its tokens, keys and grants."""
        await self._transport.call(ops.DELETE_CATALOG_CLIENT, {"client": client})

    async def keys(self, client: str) -> list[types.CatalogKey]:
        """API keys of a client."""
        return (await self._transport.call(ops.LIST_CATALOG_KEYS, {"client": client}))["keys"]

    async def create_key(
        self, client: str, name: str, *, expires_seconds: int | None = None
    ) -> types.CatalogKeySecret:
        """Makes an API key; it is told this once."""
        body: dict[str, Any] = {"name": name}
        if expires_seconds is not None:
            body["expires-seconds"] = expires_seconds
        return await self._transport.call(ops.CREATE_CATALOG_KEY, {"client": client}, json=body)

    async def rotate_key(
        self, client: str, key: str, *, grace_seconds: int = 0
    ) -> types.CatalogKeySecret:
        """Gives a key another secret."""
        return await self._transport.call(
            ops.ROTATE_CATALOG_KEY,
            {"client": client, "key": key},
            json={"grace-seconds": grace_seconds},
        )

    async def delete_key(self, client: str, key: str) -> None:
        """Removes an API key."""
        await self._transport.call(ops.DELETE_CATALOG_KEY, {"client": client, "key": key})

    async def roles(self) -> list[types.CatalogRole]:
        """Roles with their members."""
        return (await self._transport.call(ops.LIST_CATALOG_ROLES))["roles"]

    async def create_role(self, name: str, members: Sequence[str] = ()) -> None:
        """Makes a role."""
        await self._transport.call(
            ops.CREATE_CATALOG_ROLE, json={"name": name, "members": list(members)}
        )

    async def change_role(
        self, name: str, *, add: Sequence[str] = (), remove: Sequence[str] = ()
    ) -> None:
        """Changes who has a role."""
        await self._transport.call(
            ops.CHANGE_CATALOG_ROLE,
            {"role": name},
            json={"add": list(add), "remove": list(remove)},
        )

    async def delete_role(self, name: str) -> None:
        """Removes a role with what was granted to it."""
        await self._transport.call(ops.DELETE_CATALOG_ROLE, {"role": name})

    def audit(
        self,
        *,
        principal: str | None = None,
        operation: str | None = None,
        path: str | None = None,
        outcome: Literal["done", "refused", "failed"] | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> AsyncPager[types.CatalogAuditLine]:
        """Requests to the catalog, who sent them and how they ended."""
        query: dict[str, str | None] = {
            "principal": principal,
            "operation": operation,
            "path": path,
            "outcome": outcome,
            "since": since,
            "until": until,
        }

        async def fetch(token: str | None) -> types.CatalogAuditPage:
            return await self._transport.call(
                ops.LIST_CATALOG_AUDIT, query={**query, "pageToken": token}
            )

        return AsyncPager(fetch, items="lines", following="next-page-token")


def _levels(namespace: Sequence[str]) -> str:
    """A namespace in an address: its levels with the unit separator between them."""
    return "\x1f".join([namespace] if isinstance(namespace, str) else namespace)
