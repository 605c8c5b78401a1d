// The requests that Ash's TypeScript client makes, for when that client cannot be had: it is not in the
// package index any more. Method names, paths, bodies and what is returned are the published ones; where
// it makes a mistake, such as to read JSON from every answer, so does this.

/** An answer that is no success. */
export class AshApiError extends Error {
  constructor(statusCode, message) {
    super(message)
    this.name = 'AshApiError'
    this.statusCode = statusCode
  }
}

const encode = encodeURIComponent
const agent = (name) => `/api/agents/${encode(name)}`
const session = (id) => `/api/sessions/${id}`
const query = (options) => {
  const entries = Object.entries(options ?? {}).filter(([, value]) => value)
  return entries.length > 0 ? `?${new URLSearchParams(entries)}` : ''
}

/** Name of a method: its arguments to method, path, body and the member of the answer that is returned. */
const METHODS = {
  health: () => ['GET', '/health'],
  deployAgent: (name, path, more) => ['POST', '/api/agents', { name, path, ...more }, 'agent'],
  createAgent: (name, more) => ['POST', '/api/agents', { name, ...more }, 'agent'],
  listAgents: () => ['GET', '/api/agents', undefined, 'agents'],
  getAgent: (name) => ['GET', `/api/agents/${name}`, undefined, 'agent'],
  updateAgent: (name, changes) => ['PATCH', `/api/agents/${name}`, changes, 'agent'],
  deleteAgent: (name) => ['DELETE', `/api/agents/${name}`],
  listAgentFiles: (name) => ['GET', `${agent(name)}/files`],
  getAgentFile: (name, path) => ['GET', `${agent(name)}/files/${path}?format=json`],
  uploadAgentFiles: (name, files) => ['POST', `${agent(name)}/files`, { files }],
  deleteAgentFile: (name, path) => ['DELETE', `${agent(name)}/files/${path}`],
  getAgentConfig: (name) => ['GET', `${agent(name)}/config`, undefined, 'config'],
  updateAgentConfig: (name, config) => ['PATCH', `${agent(name)}/config`, config, 'config'],
  listAgentVersions: (name) => ['GET', `${agent(name)}/versions`, undefined, 'versions'],
  createAgentVersion: (name, options = {}) => ['POST', `${agent(name)}/versions`, options],
  getAgentVersion: (name, number) => ['GET', `${agent(name)}/versions/${number}`],
  updateAgentVersion: (name, number, changes) => ['PATCH', `${agent(name)}/versions/${number}`, changes],
  deleteAgentVersion: (name, number) => ['DELETE', `${agent(name)}/versions/${number}`],
  activateAgentVersion: (name, number) => ['POST', `${agent(name)}/versions/${number}/activate`],
  createSession: (name, options) => ['POST', '/api/sessions', { agent: name, ...options }, 'session'],
  listSessions: (options) => [
    'GET',
    `/api/sessions${query(typeof options === 'string' ? { agent: options } : options)}`,
    undefined,
    'sessions',
  ],
  listSessionsWithTotal: (options) => ['GET', `/api/sessions${query({ ...options, includeTotal: 'true' })}`],
  getSession: (id) => ['GET', session(id), undefined, 'session'],
  updateSessionConfig: (id, config) => ['PATCH', `${session(id)}/config`, config, 'session'],
  pauseSession: (id) => ['POST', `${session(id)}/pause`, undefined, 'session'],
  stopSession: (id) => ['POST', `${session(id)}/stop`, undefined, 'session'],
  resumeSession: (id) => ['POST', `${session(id)}/resume`, undefined, 'session'],
  forkSession: (id) => ['POST', `${session(id)}/fork`, undefined, 'session'],
  endSession: (id) => ['DELETE', session(id), undefined, 'session'],
  exec: (id, command, options) => ['POST', `${session(id)}/exec`, { command, ...options }],
  listMessages: (id, { limit, afterSequence } = {}) => [
    'GET',
    `${session(id)}/messages${query({ limit, after: afterSequence })}`,
    undefined,
    'messages',
  ],
  listSessionEvents: (id, { limit, afterSequence, type } = {}) => [
    'GET',
    `${session(id)}/events${query({ limit, after: afterSequence, type })}`,
    undefined,
    'events',
  ],
  getSessionLogs: (id, { after } = {}) => ['GET', `${session(id)}/logs${after == null ? '' : `?after=${after}`}`],
  getSessionFiles: (id, { includeHidden = true } = {}) => [
    'GET',
    `${session(id)}/files${includeHidden ? '' : '?includeHidden=false'}`,
  ],
  getSessionFile: (id, path) => ['GET', `${session(id)}/files/${path}?format=json`],
  writeSessionFiles: (id, files, targetPath) => [
    'POST',
    `${session(id)}/files`,
    { files, ...(targetPath && { targetPath }) },
  ],
  deleteSessionFile: (id, path) => ['DELETE', `${session(id)}/files/${path}`],
  storeCredential: (type, key, label) => ['POST', '/api/credentials', { type, key, label }, 'credential'],
  listCredentials: () => ['GET', '/api/credentials', undefined, 'credentials'],
  deleteCredential: (id) => ['DELETE', `/api/credentials/${id}`],
  uploadAttachment: (id, filename, content, options) => [
    'POST',
    `${session(id)}/attachments`,
    { filename, content: content.toString('base64'), ...options },
    'attachment',
  ],
  listAttachments: (id) => ['GET', `${session(id)}/attachments`, undefined, 'attachments'],
  deleteAttachment: (id) => ['DELETE', `/api/attachments/${id}`],
  uploadWorkspace: (id, bundle) => ['POST', `${session(id)}/workspace`, { bundle: bundle.toString('base64') }],
  enqueue: (agentName, prompt, options) => ['POST', '/api/queue', { agentName, prompt, ...options }, 'item'],
  listQueueItems: (options) => ['GET', `/api/queue${query(options)}`, undefined, 'items'],
  getQueueItem: (id) => ['GET', `/api/queue/${id}`, undefined, 'item'],
  cancelQueueItem: (id) => ['DELETE', `/api/queue/${id}`, undefined, 'item'],
  getQueueStats: () => ['GET', '/api/queue/stats', undefined, 'stats'],
  listUsageEvents: (options) => ['GET', `/api/usage${query(options)}`, undefined, 'events'],
  getUsageStats: (options) => ['GET', `/api/usage/stats${query(options)}`, undefined, 'stats'],
  getAnalytics: (options) => ['GET', `/api/analytics${query(options)}`],
}

export class AshClient {
  constructor({ serverUrl, apiKey }) {
    this.base = serverUrl.replace(/\/$/, '')
    this.key = apiKey
  }

  async send(method, path, body) {
    const headers = {}
    if (body) headers['Content-Type'] = 'application/json'
    if (this.key) headers.Authorization = `Bearer ${this.key}`
    const response = await fetch(this.base + path, { method, headers, body: body && JSON.stringify(body) })
    if (response.ok) return response
    const told = await response.json().catch(() => ({}))
    throw new AshApiError(response.status, told.message || told.error || response.statusText)
  }

  async *sendMessageStream(id, content, options) {
    const response = await this.send('POST', `${session(id)}/messages`, { content, ...options })
    let [rest, type] = ['', '']
    for await (const text of response.body.pipeThrough(new TextDecoderStream())) {
      const lines = (rest + text).split('\n')
      rest = lines.pop()
      for (const line of lines) {
        if (line.startsWith('event: ')) type = line.slice(7).trim()
        else if (line.startsWith('data: ')) yield { type, data: JSON.parse(line.slice(6)) }
      }
    }
  }

  async downloadSessionFile(id, path) {
    const response = await this.send('GET', `${session(id)}/files/${path}`)
    const [mimeType, source] = ['Content-Type', 'X-Ash-Source'].map((name) => response.headers.get(name))
    return { buffer: Buffer.from(await response.arrayBuffer()), mimeType, source }
  }

  async downloadAttachment(id) {
    return Buffer.from(await (await this.send('GET', `/api/attachments/${id}`)).arrayBuffer())
  }

  async downloadWorkspace(id) {
    return Buffer.from(await (await this.send('GET', `${session(id)}/workspace`)).arrayBuffer())
  }
}

for (const [name, request] of Object.entries(METHODS)) {
  AshClient.prototype[name] = async function (...parameters) {
    const [method, path, body, member] = request(...parameters)
    const value = await (await this.send(method, path, body)).json()
    return member ? value[member] : value
  }
}
