// Files of a session: a tree that is read as it is opened and follows changes, a viewer, an editor.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import {
  ApiError, Badge, Button, Dialog, Editor, Empty, ErrorNote, Foreign, Form, Icon, Note, Skeleton, TextField, Time, api, attempt,
  bytes, confirm, follow, messageOf, path, request, saveFile, toast, useQuery,
} from '../../kit';
import type { FileEntry } from './model';

/** Bytes of a file that are shown or edited. */
const SHOWN_BYTES_MAX = 1024 * 1024;
/** Bytes of a picture that is shown. */
const PICTURE_BYTES_MAX = 8 * 1024 * 1024;
/** Entries of one directory that are read. */
const ENTRIES_MAX = 2000;
const PICTURES: Record<string, string> = {
  png: 'image/png', jpg: 'image/jpeg', jpeg: 'image/jpeg', gif: 'image/gif', webp: 'image/webp', bmp: 'image/bmp', ico: 'image/x-icon',
};
const LANGUAGES: Record<string, string> = {
  py: 'python', js: 'javascript', mjs: 'javascript', cjs: 'javascript', ts: 'typescript', tsx: 'typescript', json: 'json', sh: 'bash',
  bash: 'bash', c: 'c', h: 'c', cpp: 'cpp', cc: 'cpp', rs: 'rust', go: 'go', java: 'java', rb: 'ruby', sql: 'sql', toml: 'toml', yaml: 'yaml',
  yml: 'yaml', md: 'markdown', html: 'html', css: 'css',
};

const nameOf = (file: string) => file.slice(file.lastIndexOf('/') + 1);
const parentOf = (file: string) => (file.includes('/') ? file.slice(0, file.lastIndexOf('/')) : '');
const endingOf = (file: string) => /\.([A-Za-z0-9]+)$/.exec(file)?.[1]?.toLowerCase() ?? '';
const join = (directory: string, name: string) => (directory === '' ? name : `${directory}/${name}`);

/** Address of a file, its path encoded part by part. */
function addressOf(session: string, file: string): string {
  return `${path`/v1/sessions/${session}/files`}/${file.split('/').map(encodeURIComponent).join('/')}`;
}

type Listing = { entries: FileEntry[]; isCut: boolean } | Error;

export function Files({ session, isResting }: { session: string; isResting: boolean }) {
  const [isAllowed, setAllowed] = useState(!isResting);
  if (!isAllowed) {
    return (
      <Empty icon="folder" title="The session has no sandbox now" action={<Button icon="folder-open" onClick={() => setAllowed(true)}>Show its files</Button>}>
        <p>It gets one for a moment to show its files, and stays what it is.</p>
      </Empty>
    );
  }
  return <Browser session={session} />;
}

function Browser({ session }: { session: string }) {
  const [listings, setListings] = useState<Map<string, Listing>>(new Map());
  const [open, setOpen] = useState<Set<string>>(new Set());
  const [selected, setSelected] = useQuery('file');
  const [changed, setChanged] = useState(0);
  const [asked, setAsked] = useState<PathQuestion | null>(null);
  const opened = useRef(open);
  opened.current = open;

  const read = async (directory: string) => {
    try {
      const { entries, truncated } = await api<{ entries: FileEntry[]; truncated: boolean }>(
        path`/v1/sessions/${session}/files`, { query: { path: directory === '' ? '.' : directory, depth: 1, limit: ENTRIES_MAX } },
      );
      const order = (it: FileEntry) => `${it.kind === 'dir' ? 0 : 1}${nameOf(it.path).toLowerCase()}`;
      entries.sort((one, other) => (order(one) < order(other) ? -1 : 1));
      setListings((all) => new Map(all).set(directory, { entries, isCut: truncated }));
    } catch (error) {
      setListings((all) => new Map(all).set(directory, error as Error));
    }
  };
  useEffect(() => { void read(''); }, [session]);
  useEffect(() => {
    // Many changes at once are one reading of their directory.
    const due = new Set<string>();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const stop = follow<{ type: string; path: string }>('session.files', { session, recursive: true }, {
      onEvent: (change) => {
        due.add(change.type === 'overflow' ? '' : parentOf(change.path));
        setChanged((before) => before + 1);
        clearTimeout(timer);
        timer = setTimeout(() => {
          for (const directory of due) if (directory === '' || opened.current.has(directory)) void read(directory);
          due.clear();
        }, 150);
      },
    });
    return () => {
      clearTimeout(timer);
      stop();
    };
  }, [session]);

  const toggle = (directory: string) => {
    const next = new Set(open);
    if (next.delete(directory)) {
      setOpen(next);
      return;
    }
    next.add(directory);
    setOpen(next);
    void read(directory);
  };
  const put = async (file: string, body: BodyInit, query: Record<string, string | boolean> = {}) => {
    await request(addressOf(session, file), { method: 'PUT', body, query });
    void read(parentOf(file));
  };
  const upload = async (directory: string, files: FileList | null) => {
    for (const file of files ?? []) {
      await attempt(put(join(directory, file.name), file), `Uploaded ${file.name}`);
    }
  };
  const make = (isDirectory: boolean) => setAsked({
    title: isDirectory ? 'New directory' : 'New file', action: 'Create',
    value: join(selectedDirectory(selected, listings), isDirectory ? 'directory' : 'file.txt'),
    answer: async (file) => {
      await attempt(put(file, '', isDirectory ? { directory: true } : { create: true }), `Created ${file}`);
      const base = parentOf(file);
      if (base !== '' && !open.has(base)) toggle(base);
      if (!isDirectory) setSelected(file);
    },
  });
  const picker = useRef<HTMLInputElement>(null);
  return (
    <div class="files">
      <section class="panel files-tree" aria-label="Files"
        onDragOver={(event) => event.preventDefault()}
        onDrop={(event) => {
          event.preventDefault();
          void upload(selectedDirectory(selected, listings), event.dataTransfer?.files ?? null);
        }}>
        <header class="panel-head">
          <h2>/workspace</h2>
          <div class="row">
            <Button kind="quiet" icon="file" label="New file" onClick={() => make(false)} />
            <Button kind="quiet" icon="folder" label="New directory" onClick={() => make(true)} />
            <Button kind="quiet" icon="upload" label="Upload files" onClick={() => picker.current?.click()} />
            <Button kind="quiet" icon="refresh-cw" label="Read again" onClick={() => { void read(''); for (const it of open) void read(it); }} />
            <input ref={picker} type="file" multiple hidden aria-label="Files to upload"
              onChange={(event) => {
                void upload(selectedDirectory(selected, listings), event.currentTarget.files);
                event.currentTarget.value = '';
              }} />
          </div>
        </header>
        <div class="tree" role="tree" aria-label="Files of the workspace">
          <Directory directory="" depth={0} listings={listings} open={open} selected={selected} onToggle={toggle} onSelect={setSelected} onRetry={read} />
        </div>
      </section>
      <section class="panel files-view" aria-label="File">
        {selected === '' ? (
          <Empty icon="file" title="No file is open"><p>Choose one at the left, or drop files there to upload them.</p></Empty>
        ) : (
          <View key={selected} session={session} file={selected} changed={changed}
            onGone={() => { setSelected(''); void read(parentOf(selected)); }} onMoved={(to) => { setSelected(to); void read(parentOf(to)); }} />
        )}
      </section>
      {asked && <AskPath asked={asked} onClose={() => setAsked(null)} />}
    </div>
  );
}

/** Asks for a path. */
interface PathQuestion { title: string; value: string; action: string; answer: (path: string) => void }

function AskPath({ asked, onClose }: { asked: PathQuestion; onClose: () => void }) {
  const [value, setValue] = useState(asked.value);
  return (
    <Dialog title={asked.title} onClose={onClose}>
      <Form submit={asked.action} onCancel={onClose} onSubmit={async () => { onClose(); asked.answer(value.trim()); }}>
        {() => <TextField label="Path" value={value} onValue={setValue} hint="Below /workspace" required autofocus />}
      </Form>
    </Dialog>
  );
}

/** The directory that new files go to: that of what is selected. */
function selectedDirectory(selected: string, listings: Map<string, Listing>): string {
  return listings.has(selected) ? selected : parentOf(selected);
}

function Directory({ directory, depth, listings, open, selected, onToggle, onSelect, onRetry }: {
  directory: string; depth: number; listings: Map<string, Listing>; open: Set<string>; selected: string;
  onToggle: (directory: string) => void; onSelect: (file: string) => void; onRetry: (directory: string) => void;
}) {
  const listing = listings.get(directory);
  const indent = { paddingLeft: `${8 + depth * 14}px` };
  if (listing === undefined) return <div style={indent}><Skeleton rows={depth === 0 ? 5 : 1} /></div>;
  if (listing instanceof Error) return <div style={indent}><ErrorNote error={listing} onRetry={() => onRetry(directory)} /></div>;
  if (listing.entries.length === 0) return <p class="muted tree-empty" style={indent}>{depth === 0 ? 'No files yet' : 'empty'}</p>;
  return (
    <>
      {listing.entries.map((entry) => {
        const file = join(directory, nameOf(entry.path));
        const isDirectory = entry.kind === 'dir';
        const isOpen = open.has(file);
        return (
          <div key={file} role="none">
            <button type="button" role="treeitem" aria-expanded={isDirectory ? isOpen : undefined} aria-selected={selected === file}
              class="tree-row" style={indent} title={file}
              onKeyDown={(event) => {
                if (isDirectory && ((event.key === 'ArrowRight' && !isOpen) || (event.key === 'ArrowLeft' && isOpen))) onToggle(file);
                else if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
                  event.preventDefault();
                  const all = [...event.currentTarget.closest('[role=tree]')!.querySelectorAll<HTMLElement>('[role=treeitem]')];
                  all[all.indexOf(event.currentTarget) + (event.key === 'ArrowDown' ? 1 : -1)]?.focus();
                }
              }}
              onClick={() => { if (isDirectory) onToggle(file); else onSelect(file); }}>
              <Icon name={isDirectory ? (isOpen ? 'folder-open' : 'folder') : 'file'} size={14} />
              <span class="tree-name">{nameOf(entry.path)}</span>
              <span class="tree-size">{isDirectory ? '' : entry.kind === 'file' ? bytes(entry.size) : entry.kind}</span>
            </button>
            {isDirectory && isOpen && (
              <div role="group">
                <Directory directory={file} depth={depth + 1} listings={listings} open={open} selected={selected} onToggle={onToggle} onSelect={onSelect} onRetry={onRetry} />
              </div>
            )}
          </div>
        );
      })}
      {listing.isCut && <p class="muted tree-empty" style={indent}>The first {ENTRIES_MAX} entries are shown.</p>}
    </>
  );
}

type Content = { kind: 'text'; text: string } | { kind: 'picture'; address: string } | { kind: 'bytes'; why: string } | { kind: 'error'; error: unknown };

function View({ session, file, changed, onGone, onMoved }: {
  session: string; file: string; changed: number; onGone: () => void; onMoved: (to: string) => void;
}) {
  const [entry, setEntry] = useState<FileEntry | null>(null);
  const [content, setContent] = useState<Content | null>(null);
  const [draft, setDraft] = useState<string | null>(null);
  const [isStale, setStale] = useState(false);
  const [asked, setAsked] = useState<PathQuestion | null>(null);
  const known = useRef(0);
  const address = addressOf(session, file);

  const load = async () => {
    setStale(false);
    try {
      const it = await api<FileEntry>(address, { query: { stat: true } });
      setEntry(it);
      known.current = it.modified_ms;
      const type = PICTURES[endingOf(file)];
      if (type !== undefined && it.size <= PICTURE_BYTES_MAX) {
        const blob = new Blob([await (await request(address)).arrayBuffer()], { type });
        setContent({ kind: 'picture', address: URL.createObjectURL(blob) });
        return;
      }
      if (it.kind !== 'file') {
        setContent({ kind: 'bytes', why: `This is a ${it.kind}.` });
        return;
      }
      if (it.size > SHOWN_BYTES_MAX) {
        setContent({ kind: 'bytes', why: `It has ${bytes(it.size)}; up to ${bytes(SHOWN_BYTES_MAX)} are shown.` });
        return;
      }
      const data = await (await request(address)).arrayBuffer();
      try {
        const text = new TextDecoder('utf-8', { fatal: true }).decode(data);
        if (text.includes('\0')) throw new Error('binary');
        setContent({ kind: 'text', text });
        setDraft(null);
      } catch {
        setContent({ kind: 'bytes', why: 'It is no text in UTF-8.' });
      }
    } catch (error) {
      setContent({ kind: 'error', error });
    }
  };
  useEffect(() => { void load(); }, [address]);
  useEffect(() => () => { if (content?.kind === 'picture') URL.revokeObjectURL(content.address); }, [content]);
  useEffect(() => {
    if (changed === 0) return;
    api<FileEntry>(address, { query: { stat: true } }).then((it) => {
      if (it.modified_ms === known.current) return;
      if (draft === null) void load();
      else setStale(true);
    }, (error: unknown) => {
      if (error instanceof ApiError && error.status === 404) setStale(true);
    });
  }, [changed]);

  const save = async () => {
    if (draft === null) return;
    const now = await api<FileEntry>(address, { query: { stat: true } }).catch(() => null);
    if (now !== null && now.modified_ms !== known.current) {
      const isSure = await confirm({
        title: 'The file was changed meanwhile', action: 'Overwrite it', isDanger: true,
        body: `Something in the sandbox wrote ${file} after you opened it. What it wrote is lost if you overwrite it.`,
      });
      if (!isSure) return;
    }
    await attempt(request(address, { method: 'PUT', body: draft, query: entry ? { mode: `0${(entry.mode & 0o777).toString(8)}` } : {} }), `Saved ${nameOf(file)}`);
    await load();
  };
  const download = async () => {
    try {
      saveFile([await (await request(address)).blob()], nameOf(file));
    } catch (error) {
      toast(messageOf(error), 'bad');
    }
  };
  const move = () => setAsked({
    title: 'Rename or move', value: file, action: 'Move',
    answer: async (to) => {
      if (to === file) return;
      const moved = api(`${path`/v1/sessions/${session}/files`}/move`, { json: { from: file, to } }).then(() => true);
      if (await attempt(moved, `Moved to ${to}`)) onMoved(to);
    },
  });
  const remove = async () => {
    const isSure = await confirm({ title: `Delete ${nameOf(file)}?`, action: 'Delete file', isDanger: true, body: 'A snapshot made before has it still.' });
    if (!isSure) return;
    const done = await attempt(api(address, { method: 'DELETE' }).then(() => true), `Deleted ${nameOf(file)}`);
    if (done) onGone();
  };
  const language = useMemo(() => LANGUAGES[endingOf(file)] ?? 'text', [file]);
  return (
    <>
      <header class="panel-head">
        <h2><Foreign text={file} /></h2>
        <div class="row">
          {draft !== null && <Badge tone="warn">not saved</Badge>}
          {content?.kind === 'text' && <Button icon="save" keys="Ctrl+S" isDisabled={draft === null} onClick={save}>Save</Button>}
          <Button kind="quiet" icon="download" label="Download" onClick={download} />
          <Button kind="quiet" icon="pencil" label="Rename or move" onClick={move} />
          <Button kind="quiet" icon="trash" label="Delete" onClick={remove} />
        </div>
      </header>
      {isStale && (
        <Note tone="warn">
          The file was changed or removed in the sandbox since you opened it. <Button kind="quiet" onClick={() => { setDraft(null); void load(); }}>Read it again</Button>
        </Note>
      )}
      <div class="file-content">
        {content === null && <Skeleton rows={8} />}
        {content?.kind === 'error' && <ErrorNote error={content.error} onRetry={load} />}
        {content?.kind === 'bytes' && <Empty icon="file" title="It is not shown"><p>{content.why} Download it to look at it.</p></Empty>}
        {content?.kind === 'picture' && <img src={content.address} alt={nameOf(file)} />}
        {content?.kind === 'text' && (
          <Editor text={draft ?? content.text} language={language} label={`Content of ${nameOf(file)}`} onSave={save}
            onChange={(text) => setDraft(text === content.text ? null : text)} />
        )}
      </div>
      {entry && (
        <footer class="file-facts muted">
          <span>{bytes(entry.size)}</span><span>{(entry.mode & 0o7777).toString(8)}</span><Time ms={entry.modified_ms} />
        </footer>
      )}
      {asked && <AskPath asked={asked} onClose={() => setAsked(null)} />}
    </>
  );
}
