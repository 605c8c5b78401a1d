// Ten thousand rows: only those that are seen are in the document, whichever way they are reached.
export const name = 'table';

const ROWS = 10_000;

export async function check({ page, go, until, axe }) {
  await go('/');
  // The toolkit of the page itself, with rows that no server has to make.
  await page.evaluate(async (length) => {
    const kit = await import(document.querySelector('script[type=module]').src);
    const place = document.createElement('div');
    place.id = 'many';
    document.querySelector('main').replaceChildren(place);
    const rows = Array.from({ length }, (_, at) => ({ id: `row-${at}`, number: (at * 7919) % length }));
    const columns = [
      { id: 'id', title: 'Id', width: '1fr', render: (row) => row.id, sort: (row) => row.id },
      { id: 'number', title: 'Number', width: '120px', align: 'end', render: (row) => kit.count(row.number), sort: (row) => row.number },
    ];
    const changed = kit.signal(0);
    window.change = () => { changed.value += 1; };
    function Many() {
      const [sorting, setSorting] = kit.useState({ id: '', isDescending: false });
      void changed.value;
      const shown = kit.sorted(rows, columns, sorting);
      return kit.h(kit.Table, { label: 'Many', columns, rows: shown, keyOf: (row) => row.id, onOpen: (row) => { window.opened = row.id; }, sorting, onSort: setSorting });
    }
    kit.render(kit.h(Many), place);
  }, ROWS);
  const inDocument = () => page.locator('#many [data-at]').count();
  await page.waitForSelector('#many [data-at="0"]');
  await page.waitForSelector(`#many [role=grid][aria-rowcount="${ROWS + 1}"]`);
  await until('few rows in the document', async () => await inDocument() < 80);
  await page.focus('#many [data-at="0"]');
  await page.keyboard.press('End');
  await page.waitForSelector(`#many [data-at="${ROWS - 1}"]:focus`);
  await until('few rows after a jump to the end', async () => await inDocument() < 80);
  await page.keyboard.press('Enter');
  await until('Enter opens the row with the focus', async () => await page.evaluate(() => window.opened) === `row-${ROWS - 1}`);
  // The focus stays at its row while values change.
  await page.evaluate(() => window.change());
  await page.waitForSelector(`#many [data-at="${ROWS - 1}"]:focus`);
  await page.keyboard.press('Home');
  await page.waitForSelector('#many [data-at="0"]:focus');
  await page.click('#many [role=columnheader] button:has-text("Number")');
  await until('the order by number', async () => (await page.textContent('#many [data-at="1"] [role=gridcell]:last-child')) === '1');
  await axe();
}
