// How clients reach a warehouse or a table: commands and programs with the values of this server.
import { Command, Panel, Segments, apiOrigin, useQuery } from '../../kit';

interface ConnectProps { warehouse: string; namespace?: string[]; name?: string }

/** A name as SQL quotes it. */
const quoted = (name: string, mark: string) => mark + name.replaceAll(mark, mark + mark) + mark;

function pyiceberg({ warehouse, namespace, name }: ConnectProps): string {
  const table = namespace && name !== undefined ? `\ntable = catalog.load_table((${[...namespace, name].map((it) => JSON.stringify(it)).join(', ')}))
print(table.scan(limit=10).to_arrow())` : '\nprint(catalog.list_namespaces())';
  return `import os
from pyiceberg.catalog import load_catalog  # pip install 'pyiceberg[pyarrow]'

catalog = load_catalog(
    "cove", type="rest", uri=${JSON.stringify(`${apiOrigin}/catalog`)},
    warehouse=${JSON.stringify(warehouse)}, token=os.environ["COVE_TOKEN"],
)${table}`;
}

/** A word between single quotes of a shell. */
const shell = (text: string) => `'${text.replaceAll("'", "'\\''")}'`;

function spark({ warehouse, namespace, name }: ConnectProps): string {
  const table = namespace && name !== undefined ? ['cove', ...namespace, name].map((it) => quoted(it, '`')).join('.') : null;
  const query = table === null ? 'SHOW NAMESPACES IN cove' : `SELECT * FROM ${table} LIMIT 10`;
  return `spark-sql --packages org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0 \\
  --conf spark.sql.catalog.cove=org.apache.iceberg.spark.SparkCatalog \\
  --conf spark.sql.catalog.cove.type=rest \\
  --conf spark.sql.catalog.cove.uri=${shell(`${apiOrigin}/catalog`)} \\
  --conf spark.sql.catalog.cove.warehouse=${shell(warehouse)} \\
  --conf spark.sql.catalog.cove.token="$COVE_TOKEN" \\
  -e ${shell(query)}`;
}

function duckdb({ warehouse, namespace, name }: ConnectProps): string {
  const text = (value: string) => `'${value.replaceAll("'", "''")}'`;
  const query = namespace && name !== undefined
    ? `SELECT * FROM cove.${quoted(namespace.join('.'), '"')}.${quoted(name, '"')} LIMIT 10;` : 'SHOW ALL TABLES;';
  return `INSTALL iceberg; LOAD iceberg;
CREATE SECRET cove_token (TYPE iceberg, TOKEN 'TOKEN');  -- cove token
ATTACH ${text(warehouse)} AS cove (TYPE iceberg, ENDPOINT ${text(`${apiOrigin}/catalog`)}, SECRET cove_token);
${query}`;
}

function sandbox({ warehouse, namespace, name }: ConnectProps): string {
  const query = namespace && name !== undefined ? `SELECT * FROM ${[namespace.join('.'), name].map((it) => (/^\w+$/.test(it) ? it : quoted(it, '"'))).join('.')} LIMIT 10` : 'SHOW TABLES';
  return `id=$(cove session create --template TEMPLATE --grant ${shell(`catalog:${warehouse}`)})
cove session sql $id ${shell(`catalog:${warehouse}`)} ${shell(query)}`;
}

const TOOLS = { pyiceberg, spark, duckdb, sandbox };

export function Connect(props: ConnectProps) {
  const [tool, setTool] = useQuery('tool', 'pyiceberg');
  const make = TOOLS[tool as keyof typeof TOOLS] ?? pyiceberg;
  return (
    <Panel title="Connect a client" actions={(
      <Segments label="Client" value={tool in TOOLS ? tool : 'pyiceberg'} onValue={setTool} choices={[
        { value: 'pyiceberg', label: 'PyIceberg' }, { value: 'spark', label: 'Spark' }, { value: 'duckdb', label: 'DuckDB' }, { value: 'sandbox', label: 'Sandbox' },
      ]} />
    )}>
      <Command text={make(props)} />
      <p class="muted">
        {make === duckdb ? <>Put a token where <code>TOKEN</code> stands. </> : make === sandbox
          ? <>A sandbox needs no token: its grant says what it may do. <code>TEMPLATE</code> is a template with <code>pyiceberg[pyarrow]</code> and <code>duckdb</code> in it. </>
          : <><code>COVE_TOKEN</code> is a token with the scope <code>catalog</code>, or an API key of a client of the catalog: <code>export COVE_TOKEN=$(cove token)</code>. </>}
        Clients read and write the files of tables themselves, so they have to reach the warehouse’s root.
      </p>
    </Panel>
  );
}
