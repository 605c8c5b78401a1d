-- Accepting jobs.

-- Fields of one job in the arguments of `reserve`.
local WIDTH = 13

-- Checks all jobs, then writes the records of the new ones. The jobs are put in BullMQ's queue
-- after that, and `confirm` says so; a record without that is undone by a sweep.
-- The answer is one word for a refusal, or `new`, `again` (it was never confirmed) or `before` and
-- the id of each.
function ops.reserve()
  local all_max, tenant_max, now, n = num(1), num(2), arg(5), num(6)
  local jobs, out, fresh, of, seen = {}, {}, 0, {}, {}
  local bytes, bytes_of = 0, {}
  for i = 0, n - 1 do
    local a = 6 + i * WIDTH
    local job = {
      id = arg(a + 1), t = arg(a + 2), q = arg(a + 3), lang = arg(a + 4), label = arg(a + 5),
      prio = arg(a + 6), created = arg(a + 7), deadline = arg(a + 8), face = arg(a + 9),
      hook = arg(a + 10), idem = arg(a + 11), fp = arg(a + 12),
      bytes = num(a + 13),
    }
    local known, here
    if job.idem ~= '' then
      here = seen[job.t .. '\0' .. job.idem]
      local held = here or rcall('HGET', O .. 'idem:' .. job.t, job.idem)
      if held and (here or rcall('EXISTS', key(string.sub(held, 65))) == 1) then
        if string.sub(held, 1, 64) ~= job.fp then
          return { 'reused' }
        end
        known = string.sub(held, 65)
      else
        seen[job.t .. '\0' .. job.idem] = job.fp .. job.id
      end
    end
    if not known and rcall('EXISTS', key(job.id)) == 1 then
      known = job.id
    end
    if known then
      local again = not here and fields(known, 'st')[1] == 'pending'
      table.insert(out, again and 'again' or 'before')
      table.insert(out, known)
    else
      fresh = fresh + 1
      of[job.t] = (of[job.t] or 0) + 1
      bytes = bytes + job.bytes
      bytes_of[job.t] = (bytes_of[job.t] or 0) + job.bytes
      table.insert(jobs, job)
      table.insert(out, 'new')
      table.insert(out, job.id)
    end
  end
  if fresh > 0 and rcall('ZCARD', O .. 'waiting') + fresh > all_max then
    return { 'full' }
  end
  if fresh > 0 and sum('waiting') + bytes > num(3) then
    return { 'bytes' }
  end
  for t, more in pairs(of) do
    if rcall('ZCARD', O .. 'waiting:' .. t) + more > tenant_max then
      return { 'tenant' }
    end
    if sum('waiting:' .. t) + bytes_of[t] > num(4) then
      return { 'tenant bytes' }
    end
  end
  for _, job in ipairs(jobs) do
    rcall('HSET', key(job.id), 'st', 'pending', 't', job.t, 'q', job.q, 'j', job.id,
      'lang', job.lang, 'prio', job.prio, 'created', job.created, 'hook', job.hook, 'att', 0,
      'bytes', job.bytes)
    -- What may be absent comes with a mark before it.
    if job.label ~= '' then
      rcall('HSET', key(job.id), 'label', string.sub(job.label, 2))
    end
    if job.face ~= '' then
      rcall('HSET', key(job.id), 'face', string.sub(job.face, 2))
    end
    local deadline = job.deadline ~= '' and job.deadline or nil
    if deadline then
      rcall('HSET', key(job.id), 'deadline', deadline)
    end
    if job.idem ~= '' then
      rcall('HSET', key(job.id), 'idem', job.idem)
      rcall('HSET', O .. 'idem:' .. job.t, job.idem, job.fp .. job.id)
    end
    rcall('ZADD', O .. 'ids', 0, job.id)
    rcall('ZADD', O .. 'ids:' .. job.t, 0, job.id)
    waits(job.id, job.t, job.created, deadline)
    rcall('ZADD', O .. 'pushes', now, job.id)
    rcall('HSET', O .. 'queues', job.q, job.t)
  end
  return out
end

-- The jobs are in BullMQ's queue.
function ops.confirm()
  for i = 1, #ARGV - 3 do
    local r = fields(arg(i), 'st', 'q')
    if r[1] == 'pending' then
      rcall('HSET', key(arg(i)), 'st', 'queued')
    end
    rcall('ZREM', O .. 'pushes', arg(i))
    if r[2] then
      join(r[2])
    end
  end
  return 1
end

-- A job that somebody else put in BullMQ's queue becomes ours: it waits, or runs under a token.
function ops.adopt()
  local id, t, q, j, lang, created = arg(1), arg(2), arg(3), arg(4), arg(5), arg(6)
  local tok, till, now = arg(7), arg(8), arg(9)
  if rcall('EXISTS', key(id)) == 0 then
    rcall('HSET', key(id), 't', t, 'q', q, 'j', j, 'lang', lang, 'prio', 0, 'created', created,
      'hook', '0', 'att', 0, 'st', 'queued', 'bytes', rcall('HSTRLEN', bull(q, j), 'data'))
    rcall('ZADD', O .. 'ids', 0, id)
    rcall('ZADD', O .. 'ids:' .. t, 0, id)
    rcall('HSET', O .. 'map:' .. q, j, id)
    waits(id, t, created, nil)
    join(q)
  end
  if tok ~= '' then
    waits_not(id, t)
    rcall('HSET', key(id), 'st', 'running', 'tok', tok, 'started', now)
    rcall('ZADD', O .. 'leases', till, id)
    return rcall('HINCRBY', key(id), 'att', 1)
  end
  return 0
end

-- The queue of foreign producers, always asked in turn.
function ops.enlist()
  rcall('HSET', O .. 'queues', arg(1), arg(2))
  join(arg(1))
  return 1
end
