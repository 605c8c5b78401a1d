// The API tokens of this server, without their secrets.
import { Badge, Empty, Foreign, Loaded, Note, Table, Time, sorted, useResource, useSorting, type Column } from '../../kit';
import type { Token, TokenList } from '../../schema';

const ALL_SCOPES = 6;

const COLUMNS: Column<Token>[] = [
  { id: 'name', title: 'Name', width: 'minmax(120px, 1fr)', sort: (it) => it.name, render: (it) => <Foreign text={it.name} /> },
  { id: 'id', title: 'Id', width: '150px', isMono: true, sort: (it) => it.id, render: (it) => it.id },
  { id: 'tenant', title: 'Tenant', width: 'minmax(110px, 1fr)', from: 520, sort: (it) => it.tenant ?? '', render: (it) => (it.tenant ? <Foreign text={it.tenant} /> : <span class="muted">its own</span>) },
  { id: 'scopes', title: 'Scopes', width: 'minmax(130px, 1.3fr)', from: 680, render: (it) => (it.scopes.length === ALL_SCOPES ? 'all' : it.scopes.join(', ') || 'none') },
  { id: 'operator', title: 'Operator', width: '96px', from: 600, sort: (it) => (it.operator ? 0 : 1), render: (it) => (it.operator ? <Badge tone="info">operator</Badge> : 'no') },
  { id: 'created', title: 'Made', width: '110px', from: 800, sort: (it) => Date.parse(it.created), render: (it) => <Time ms={Date.parse(it.created)} /> },
  { id: 'expires', title: 'Ends', width: '120px', sort: (it) => (it.expires ? Date.parse(it.expires) : null), render: (it) => <Ends token={it} /> },
];

function Ends({ token: { expires, expired } }: { token: Token }) {
  if (!expires) return <span class="muted">when revoked</span>;
  return expired ? <Badge tone="warn">expired</Badge> : <Time ms={Date.parse(expires)} />;
}

/** All tokens, the oldest first. */
export function Tokens() {
  const from = useResource<TokenList>('/v1/tokens', 10_000);
  const [sorting, setSorting] = useSorting('created');
  return (
    <Loaded from={from} rows={6}>
      {({ tokens }) => (
        <>
          <Note>Tokens are made and revoked at the command line: <code>cove token create</code>, <code>cove token revoke</code>. Neither tokens nor their hashes are shown.</Note>
          <Table label="Tokens" columns={COLUMNS} rows={sorted(tokens, COLUMNS, sorting)} keyOf={(it) => it.id} sorting={sorting} onSort={setSorting}
            empty={<Empty icon="key" title="No token" command="cove token create --name ci --scope executions" />} />
        </>
      )}
    </Loaded>
  );
}
