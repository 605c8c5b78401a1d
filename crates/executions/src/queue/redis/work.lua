-- Claiming, keeping and ending.

-- Whose turn it is: up to `max` names of queues, one for each job. What is past its deadline is
-- named instead, to be taken out first. A queue gives at most what its tenant's quota leaves.
function ops.pick()
  local max, now = num(1), num(2)
  local overdue = rcall('ZRANGEBYSCORE', O .. 'deadlines', '-inf', now, 'LIMIT', 0, 100)
  local out = { 'overdue', unpack(overdue) }
  if #out > 1 then
    return out
  end
  out = { 'turns' }
  if rcall('EXISTS', O .. 'paused') == 1 then
    return out
  end
  local most, quota = num(4), {}
  for i = 1, num(5) do
    quota[arg(4 + 2 * i)] = num(5 + 2 * i)
  end
  local left, idle, passed = {}, 0, {}
  while #out <= max and idle < rcall('LLEN', O .. 'ring') do
    local q = rcall('LPOP', O .. 'ring')
    if not left[q] then
      left[q] = available(q, now)
      if most >= 0 and left[q] > (quota[q] or most) then
        left[q], passed[q] = quota[q] or most, true
      end
    end
    if left[q] > 0 then
      left[q] = left[q] - 1
      idle = 0
      table.insert(out, q)
      rcall('RPUSH', O .. 'ring', q)
    elseif passed[q] or q == arg(3) or rcall('ZCARD', bull(q, 'delayed')) > 0
      or (rcall('HEXISTS', bull(q, 'meta'), 'paused') == 1 and has_any(q)) then
      -- It may get something without our knowing.
      idle = idle + 1
      rcall('RPUSH', O .. 'ring', q)
    end
  end
  return out
end

-- The queues that wait, those whose turn it is first.
function ops.ring()
  return rcall('LRANGE', O .. 'ring', 0, num(1) - 1)
end

-- After BullMQ's script moved a job to `active` under this token: the record of it.
function ops.claimed()
  local q, tok, till, now = arg(1), arg(2), arg(3), num(4)
  local j = rcall('LINDEX', bull(q, 'active'), 0)
  if not j or rcall('GET', bull(q, j) .. ':lock') ~= tok then
    return { 'none' }
  end
  local id = rcall('HGET', O .. 'map:' .. q, j) or j
  local r = fields(id, 'q', 'j', 't', 'st')
  if r[1] ~= q or r[2] ~= j then
    return { 'stray', j, rcall('HGET', bull(q, j), 'data'), rcall('HGET', bull(q, j), 'timestamp') }
  end
  if ENDED[r[4]] then
    revive(id)
  end
  waits_not(id, r[3])
  rcall('HSET', key(id), 'st', 'running', 'started', arg(4), 'tok', tok)
  local att = rcall('HINCRBY', key(id), 'att', 1)
  rcall('ZADD', O .. 'leases', till, id)
  r = fields(id, 'gone', 'cmsg', 'deadline', 'cancel', 't')
  if r[1] or r[4] then
    return { 'doomed', j, id, att, r[1] or 'cancelled', r[2] or '' }
  end
  if r[3] and tonumber(r[3]) <= now then
    return { 'doomed', j, id, att, 'expired', '' }
  end
  -- BullMQ: a job that is to fail without being run, for example for the sake of a child.
  local defa = rcall('HGET', bull(q, j), 'defa')
  if defa then
    return { 'doomed', j, id, att, 'dead', defa }
  end
  return { 'job', j, id, att, r[5], rcall('HGET', bull(q, j), 'data') }
end

-- The next sweep tells of this end.
function ops.late()
  rcall('RPUSH', O .. 'late', arg(1))
  return 1
end

function ops.beat()
  local id, tok = arg(1), arg(2)
  local r = fields(id, 'st', 'tok', 'cancel')
  if r[1] ~= 'running' or r[2] ~= tok or view(id) ~= 'running' then
    return 'lost'
  end
  rcall('ZADD', O .. 'leases', arg(3), id)
  return r[3] and 'cancel' or 'held'
end

-- The lease is what counts, and the lock is its image in BullMQ's layout: when the lock has run out
-- and nobody took the job, its holder has it again, so that the job can be moved.
function ops.relock()
  local id, tok = arg(1), arg(2)
  local r = fields(id, 'st', 'tok', 'q', 'j')
  if r[1] ~= 'running' or r[2] ~= tok then
    return 0
  end
  local lock = bull(r[3], r[4]) .. ':lock'
  if rcall('EXISTS', lock) == 1 or not rcall('LPOS', bull(r[3], 'active'), r[4]) then
    return 0
  end
  rcall('SET', lock, tok, 'PX', arg(3))
  return 1
end

-- After BullMQ's script moved a job to a final set: the record of it. A repeat of what was done
-- already, because its answer was lost, says the same again.
function ops.settle()
  local id, tok, st, now, msg = arg(1), arg(2), arg(3), arg(4), arg(5)
  local r = fields(id, 'tok', 'st', 'q', 'j', 'finished')
  if r[1] ~= tok then
    return 'fenced'
  end
  if r[2] == st and r[5] == now then
    return st
  end
  local out = r[2] == 'running' and outcome(r[3], r[4])
  if not out then
    return 'fenced'
  end
  if rcall('HGET', bull(r[3], r[4]), 'finishedOn') ~= now then
    -- A worker of BullMQ's was faster.
    conclude(id, out == 'completed' and 'finished' or 'dead', now,
      rcall('HGET', bull(r[3], r[4]), 'failedReason'))
    return 'fenced'
  end
  conclude(id, st, now, msg)
  return st
end

-- After BullMQ's script moved a job from `active` back: the record of it.
function ops.requeue()
  local id, tok, msg, refund = arg(1), arg(2), arg(3), num(4)
  local r = fields(id, 'tok', 'st', 'q', 'j', 't', 'created', 'deadline', 'att')
  local q, j = r[3], r[4]
  if r[1] ~= tok then
    return 'fenced'
  end
  if r[2] ~= 'running' or rcall('EXISTS', bull(q, j) .. ':lock') == 1 then
    return 'fenced'
  end
  if not rcall('ZSCORE', bull(q, 'prioritized'), j) and not rcall('LPOS', bull(q, 'wait'), j) then
    return 'fenced'
  end
  rcall('ZREM', O .. 'leases', id)
  rcall('HSET', key(id), 'st', 'queued')
  if refund > 0 then
    if rcall('HINCRBY', key(id), 'att', -1) == 0 then
      rcall('HDEL', key(id), 'started')
    end
  end
  if msg ~= '' then
    rcall('HSET', key(id), 'msg', msg)
  end
  waits(id, r[5], r[6], r[7])
  join(q)
  return 'queued'
end

-- What the owner of a job in these hands wants.
function ops.wanted()
  local r = fields(arg(1), 'tok', 'cancel', 'cmsg')
  if r[1] == arg(2) and r[2] then
    return { 'cancel', r[3] or '' }
  end
  return { 'go' }
end

-- Marks a job that waits as about to go, so that nobody who claims it meanwhile runs it.
function ops.stash()
  local id, t, why, now, msg = arg(1), marked(2), arg(3), num(4), arg(5)
  local r = fields(id, 't', 'q', 'j', 'deadline', 'st')
  if not r[1] or (t and r[1] ~= t) then
    return { 'unknown' }
  end
  local st = view(id)
  if not st and r[5] ~= 'pending' then
    return { 'unknown' }
  end
  if why == 'expired' and (st == 'running' or not r[4] or tonumber(r[4]) > now) then
    return { 'unknown' }
  end
  if st and ENDED[st] then
    return { st }
  end
  if st == 'running' then
    rcall('HSET', key(id), 'cancel', 1, 'cmsg', msg)
    return { 'running' }
  end
  local data = rcall('HGET', bull(r[2], r[3]), 'data')
  if ENDED[r[5]] then
    revive(id)
  end
  rcall('HSET', key(id), 'gone', why, 'cmsg', msg, 'data', data or '')
  return { 'queued', r[2], r[3] }
end

-- After BullMQ's script removed a job that waited: the record of it.
function ops.removed()
  local id, st, now, msg = arg(1), arg(2), arg(3), arg(4)
  local r = fields(id, 'st', 'q', 'j')
  if ENDED[r[1]] then
    return r[1]
  end
  if r[1] == 'running' then
    rcall('HSET', key(id), 'cancel', 1, 'cmsg', msg)
    return 'running'
  end
  if not r[1] or exists(r[2], r[3]) then
    return 'unknown'
  end
  conclude(id, st, now, msg)
  return st
end

-- After BullMQ's script moved a dead job to wait again.
function ops.revived()
  local r = fields(arg(1), 'st', 'q', 'j')
  if ENDED[r[1]] and exists(r[2], r[3]) and not outcome(r[2], r[3]) then
    revive(arg(1))
  end
  return 1
end
