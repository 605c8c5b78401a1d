-- Looking after things: each operation does a bounded part.

-- Leases that ran out. What ended meanwhile is only noted; the rest is for BullMQ's scripts.
function ops.lost()
  local now, limit = arg(1), arg(2)
  local out = {}
  for _, id in ipairs(rcall('ZRANGEBYSCORE', O .. 'leases', '-inf', now, 'LIMIT', 0, limit)) do
    local r = fields(id, 'q', 'j', 'tok', 'att', 'cancel', 'cmsg', 'st')
    local out_of = r[1] and outcome(r[1], r[2])
    if r[7] ~= 'running' then
      rcall('ZREM', O .. 'leases', id)
    elseif out_of then
      local st = out_of == 'completed' and 'finished' or 'dead'
      conclude(id, st, now, rcall('HGET', bull(r[1], r[2]), 'failedReason'))
      table.insert(out, { 'ended', id, st })
    elseif not exists(r[1], r[2]) then
      forget(id)
    elseif not rcall('LPOS', bull(r[1], 'active'), r[2]) then
      -- A worker of BullMQ's found it stalled and put it back.
      rcall('ZREM', O .. 'leases', id)
      rcall('HSET', key(id), 'st', 'queued')
      local w = fields(id, 't', 'created', 'deadline')
      waits(id, w[1], w[2], w[3])
      join(r[1])
      table.insert(out, { 'requeued', id })
    else
      table.insert(out, { 'lost', id, r[1], r[2], r[3], r[4], r[5] and 'cancel' or '', r[6] or '' })
    end
  end
  return out
end

-- As BullMQ's workers tell of a job whose worker is gone.
function ops.stalled()
  local q, j, tok = arg(1), arg(2), arg(3)
  if rcall('GET', bull(q, j) .. ':lock') == tok then
    rcall('XADD', bull(q, 'events'), 'MAXLEN', '~', 10000, '*', 'event', 'stalled', 'jobId', j)
  end
  return 1
end

-- What waits beyond its deadline.
function ops.overdue()
  return rcall('ZRANGEBYSCORE', O .. 'deadlines', '-inf', arg(1), 'LIMIT', 0, num(2))
end

-- A push that never was; what was claimed of it all the same goes on.
function ops.unpush()
  rcall('ZREM', O .. 'pushes', arg(1))
  local st = fields(arg(1), 'st')[1]
  if st == 'cancelled' or st == 'pending' then
    forget(arg(1))
  end
  return 1
end

-- What ended too long ago, or is too much.
function ops.old()
  local cutoff, kept_max, limit = arg(1), num(2), num(3)
  local ids = rcall('ZRANGEBYSCORE', O .. 'ended', '-inf', cutoff, 'LIMIT', 0, limit)
  local over = math.min(rcall('ZCARD', O .. 'ended') - kept_max, limit)
  local bytes = sum('ended') - num(4)
  if over > #ids or bytes > 0 then
    local all = rcall('ZRANGE', O .. 'ended', 0, limit - 1)
    for at, id in ipairs(all) do
      if at > #ids and at > over and bytes <= 0 then
        break
      end
      ids[at] = id
      bytes = bytes - tonumber(fields(id, 'kept')[1] or 0)
    end
  end
  local out = {}
  for _, id in ipairs(ids) do
    if view(id) == 'queued' then
      revive(id)
    else
      local r = fields(id, 'q', 'j')
      table.insert(out, id)
      table.insert(out, r[1])
      table.insert(out, r[2])
    end
  end
  return out
end

function ops.forget()
  forget(arg(1))
  return 1
end

-- Records of waiting jobs that BullMQ's structures deny, from the oldest; queues that wait for no
-- turn though they have something.
function ops.mend()
  local now, limit = arg(1), num(2)
  local out = {}
  for _, id in ipairs(rcall('ZRANGE', O .. 'waiting', 0, limit - 1)) do
    local r = fields(id, 'st', 'q', 'j', 'gone', 'cmsg')
    local st = view(id)
    if r[1] ~= 'pending' and not st then
      if r[4] then
        conclude(id, r[4], now, r[5])
        table.insert(out, id)
        table.insert(out, r[4])
      else
        forget(id)
      end
    elseif st and ENDED[st] and not ENDED[r[1]] then
      conclude(id, st, now, rcall('HGET', bull(r[2], r[3]), 'failedReason'))
      table.insert(out, id)
      table.insert(out, st)
    end
  end
  for _, q in ipairs(rcall('HKEYS', O .. 'queues')) do
    if has_any(q) then
      join(q)
    end
  end
  return out
end

-- Pushes that nobody confirmed.
function ops.pushes()
  return rcall('ZRANGEBYSCORE', O .. 'pushes', '-inf', arg(1), 'LIMIT', 0, num(2))
end

-- What ended while somebody claimed.
function ops.told()
  local out = {}
  for _ = 1, num(1) do
    local id = rcall('LPOP', O .. 'late')
    if not id then
      break
    end
    table.insert(out, id)
    table.insert(out, view(id) or '')
  end
  return out
end

-- Jobs of a queue that have no record: they wait, or are in `active` without a lease.
function ops.strays()
  local q, limit, till = arg(1), num(2), arg(3)
  local out = {}
  local function look(ids, running)
    for _, j in ipairs(ids) do
      local id = rcall('HGET', O .. 'map:' .. q, j) or j
      local r = fields(id, 'q', 'j', 'st')
      if r[1] ~= q or r[2] ~= j then
        local job = rcall('HMGET', bull(q, j), 'data', 'timestamp')
        if job[1] then
          local lock = running and (rcall('GET', bull(q, j) .. ':lock') or 'lost') or ''
          table.insert(out, { j, job[1], job[2] or '0', lock })
        end
      elseif running and r[3] == 'queued' then
        -- Claimed by somebody who told nobody: it has a lease to come forward.
        local lock = rcall('GET', bull(q, j) .. ':lock') or 'lost'
        local t = fields(id, 't')[1]
        waits_not(id, t)
        rcall('HSET', key(id), 'st', 'running', 'tok', lock)
        rcall('ZADD', O .. 'leases', till, id)
      end
    end
  end
  look(rcall('LRANGE', bull(q, 'active'), 0, limit - 1), true)
  look(rcall('LRANGE', bull(q, 'wait'), -limit, -1), false)
  if arg(4) == '1' then
    look(rcall('ZRANGE', bull(q, 'prioritized'), 0, limit - 1), false)
    look(rcall('ZRANGE', bull(q, 'delayed'), 0, limit - 1), false)
  end
  return out
end

-- Webhooks that are due; they are hidden for a while.
function ops.hooks()
  local max, till, now = arg(1), arg(2), arg(3)
  local out = {}
  for _, id in ipairs(rcall('ZRANGEBYSCORE', O .. 'hooks', '-inf', now, 'LIMIT', 0, max)) do
    rcall('ZADD', O .. 'hooks', till, id)
    table.insert(out, id)
    table.insert(out, rcall('HINCRBY', key(id), 'hatt', 1))
  end
  return out
end

function ops.hooked()
  if arg(2) ~= '' then
    rcall('ZADD', O .. 'hooks', 'XX', arg(2), arg(1))
  else
    rcall('ZREM', O .. 'hooks', arg(1))
  end
  return 1
end

return ops[ARGV[1]]()
