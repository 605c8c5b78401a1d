-- What Cove keeps beside BullMQ's own structures, and the operations on it. One script: the first
-- argument names the operation, the second is the prefix of Cove's keys, the third BullMQ's.
--
-- Nothing here changes a list, a set or a hash of BullMQ's; its scripts do that, in the same
-- transaction. Two things of its are written: a lock that had run out is given back to its own
-- holder, and a `stalled` event is told.
--
-- Keys, after the prefix:
--   job:<id>          hash, the record of a job
--   ids, ids:<t>      every id, to list them; of a tenant
--   waiting, …:<t>    ids that wait by time of acceptance; of a tenant
--   deadlines         ids that wait by deadline
--   leases            ids that run by the end of their lease
--   ended, dead       ids by the time they ended
--   count, count:<t>  hash, how many ended in which state; of a tenant
--   bytes             hash, how large the requests are that wait, `waiting` and `waiting:<t>`, and
--                     what is kept of what ended, `ended`
--   pushes            ids that are not in BullMQ's queue yet for certain
--   hooks             ids with a webhook by the time it is due
--   late              list, ids that ended while somebody claimed; the next sweep tells
--   idem:<t>          hash, idempotency key to fingerprint and id
--   map:<queue>       hash, id of a foreign job to ours
--   queues            hash, queue to tenant
--   ring              list, queues that may have something waiting, whose turn is next first
--   paused            exists when nothing may be claimed

local O, B = ARGV[2], ARGV[3]
local rcall = redis.call
local ops = {}
local ENDED = { finished = true, cancelled = true, expired = true, dead = true }

local function arg(i)
  return ARGV[3 + i]
end

local function num(i)
  return tonumber(ARGV[3 + i])
end

-- An argument that may be absent comes with a mark before it.
local function marked(i)
  return arg(i) ~= '' and string.sub(arg(i), 2) or nil
end

local function key(id)
  return O .. 'job:' .. id
end

local function fields(id, ...)
  return rcall('HMGET', key(id), ...)
end

local function bull(q, j)
  return B .. q .. ':' .. j
end

-- In which of BullMQ's final sets a job is.
local function outcome(q, j)
  if rcall('ZSCORE', bull(q, 'completed'), j) then
    return 'completed'
  end
  if rcall('ZSCORE', bull(q, 'failed'), j) then
    return 'failed'
  end
  return nil
end

local function exists(q, j)
  return rcall('EXISTS', bull(q, j)) == 1
end

-- The state of a job: BullMQ's structures decide where they and the record differ, because
-- somebody else may have removed, retried or finished it. Nil when it is gone.
local function view(id)
  local r = fields(id, 'st', 'q', 'j')
  local st, q, j = r[1], r[2], r[3]
  if not st then
    return nil
  end
  local there = exists(q, j)
  if ENDED[st] then
    if there and not outcome(q, j) then
      return 'queued'
    end
    -- What never ran is taken out of BullMQ's queue when it is cancelled or expires.
    if not there and (st == 'finished' or st == 'dead') then
      return nil
    end
    return st
  end
  if not there then
    return nil
  end
  local out = outcome(q, j)
  if out then
    return out == 'completed' and 'finished' or 'dead'
  end
  return st == 'running' and 'running' or 'queued'
end

local function tally(t, st, by)
  rcall('HINCRBY', O .. 'count', st, by)
  rcall('HINCRBY', O .. 'count:' .. t, st, by)
end

-- How many bytes there are of a kind.
local function sum(kind)
  return tonumber(rcall('HGET', O .. 'bytes', kind) or 0)
end

local function add(kind, by)
  if by ~= 0 and rcall('HINCRBY', O .. 'bytes', kind, by) <= 0 then
    rcall('HDEL', O .. 'bytes', kind)
  end
end

-- The size of a request is noted once, so that what is added is what is taken away.
local function size(id)
  return tonumber(fields(id, 'bytes')[1] or 0)
end

-- A job is among those that ended, or not: its request and its result are added up.
local function ends(id, now)
  rcall('ZADD', O .. 'ended', now, id)
  local r = fields(id, 'q', 'j', 'kept')
  local kept = size(id) + rcall('HSTRLEN', bull(r[1], r[2]), 'returnvalue')
  add('ended', kept - tonumber(r[3] or 0))
  rcall('HSET', key(id), 'kept', kept)
end

local function ends_not(id)
  rcall('ZREM', O .. 'ended', id)
  add('ended', -tonumber(fields(id, 'kept')[1] or 0))
  rcall('HDEL', key(id), 'kept')
end

local function waits(id, t, created, deadline)
  if rcall('ZADD', O .. 'waiting', created, id) == 1 then
    add('waiting', size(id))
    add('waiting:' .. t, size(id))
  end
  rcall('ZADD', O .. 'waiting:' .. t, created, id)
  if deadline then
    rcall('ZADD', O .. 'deadlines', deadline, id)
  end
end

local function waits_not(id, t)
  if rcall('ZREM', O .. 'waiting', id) == 1 then
    add('waiting', -size(id))
    add('waiting:' .. t, -size(id))
  end
  rcall('ZREM', O .. 'waiting:' .. t, id)
  rcall('ZREM', O .. 'deadlines', id)
  rcall('ZREM', O .. 'pushes', id)
end

local function join(q)
  if not rcall('LPOS', O .. 'ring', q) then
    rcall('RPUSH', O .. 'ring', q)
  end
end

local function conclude(id, st, now, msg)
  local r = fields(id, 't', 'st', 'hook')
  waits_not(id, r[1])
  rcall('ZREM', O .. 'leases', id)
  if ENDED[r[2]] then
    tally(r[1], r[2], -1)
  end
  rcall('HSET', key(id), 'st', st, 'finished', now)
  rcall('HDEL', key(id), 'cancel', 'gone', 'cmsg')
  if msg and msg ~= '' then
    rcall('HSET', key(id), 'msg', msg)
  else
    rcall('HDEL', key(id), 'msg')
  end
  ends(id, now)
  if st == 'dead' then
    rcall('ZADD', O .. 'dead', now, id)
  end
  tally(r[1], st, 1)
  if r[3] == '1' then
    rcall('ZADD', O .. 'hooks', now, id)
    rcall('HSET', key(id), 'hatt', 0)
  end
end

-- From an end back to waiting, with fresh attempts. Its deadline was for the first time.
local function revive(id)
  local r = fields(id, 't', 'st', 'created', 'q')
  if ENDED[r[2]] then
    tally(r[1], r[2], -1)
  end
  ends_not(id)
  rcall('ZREM', O .. 'dead', id)
  rcall('ZREM', O .. 'hooks', id)
  rcall('HSET', key(id), 'st', 'queued', 'att', 0)
  rcall('HDEL', key(id), 'finished', 'started', 'msg', 'tok', 'cancel', 'gone', 'cmsg', 'deadline')
  waits(id, r[1], r[3], nil)
  join(r[4])
end

local function forget(id)
  local r = fields(id, 't', 'st', 'idem', 'q', 'j')
  local t = r[1]
  if not t then
    return
  end
  if ENDED[r[2]] then
    tally(t, r[2], -1)
  end
  if r[3] then
    local held = rcall('HGET', O .. 'idem:' .. t, r[3])
    if held and string.sub(held, 65) == id then
      rcall('HDEL', O .. 'idem:' .. t, r[3])
    end
  end
  waits_not(id, t)
  ends_not(id)
  for _, set in ipairs({ 'ids', 'ids:' .. t, 'leases', 'dead', 'hooks' }) do
    rcall('ZREM', O .. set, id)
  end
  rcall('HDEL', O .. 'map:' .. r[4], r[5])
  rcall('DEL', key(id))
end

local function backlog(q)
  return rcall('LLEN', bull(q, 'wait')) + rcall('ZCARD', bull(q, 'prioritized'))
end

-- How many of a queue could be claimed now.
local function available(q, now)
  if rcall('HEXISTS', bull(q, 'meta'), 'paused') == 1 then
    return 0
  end
  -- BullMQ: the score of a delayed job is its time in milliseconds, shifted by 12 bits.
  return backlog(q) + rcall('ZCOUNT', bull(q, 'delayed'), 0, (now + 1) * 4096 - 1)
end

local function has_any(q)
  return backlog(q) + rcall('ZCARD', bull(q, 'delayed')) > 0
end
