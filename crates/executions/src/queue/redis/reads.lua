-- Reading.

-- What may be large is read for one job only, never for a list.
local function row(id, st, one, request, result)
  local r = fields(id, 't', 'lang', 'label', 'prio', 'created', 'deadline', 'started', 'finished',
    'att', 'msg', 'q', 'j')
  local out = { id, st, r[1], r[2], r[3], r[4], r[5], r[6], r[7], r[8], r[9], r[10] }
  local job = bull(r[11], r[12])
  if not ENDED[st] then
    out[10] = false
  elseif not r[8] then
    out[10] = rcall('HGET', job, 'finishedOn')
  end
  if st == 'dead' and not r[10] then
    out[12] = rcall('HGET', job, 'failedReason')
  end
  out[13] = one and rcall('HGET', key(id), 'face') or false
  out[14] = request and (rcall('HGET', job, 'data') or rcall('HGET', key(id), 'data')) or false
  out[15] = result and st == 'finished' and rcall('HGET', job, 'returnvalue') or false
  return out
end

function ops.show()
  local st = view(arg(1))
  if not st then
    return false
  end
  return row(arg(1), st, true, arg(2) == '1', arg(3) == '1')
end

-- One step through the ids, in either order: where it stopped (empty at the end), then rows.
function ops.list()
  local t, states, lang, label = marked(1), arg(2), marked(3), marked(4)
  local before, limit, step = arg(5), num(6), num(7)
  local asc, prefix, text = arg(8) == 'asc', marked(9), marked(10)
  local since, till = num(11), num(12)
  local set = t and O .. 'ids:' .. t or O .. 'ids'
  -- No text in UTF-8 has a byte of 255.
  local low, high = prefix and '[' .. prefix or '-', prefix and '(' .. prefix .. '\255' or '+'
  local ids
  if asc then
    if before ~= '' and (not prefix or string.sub(before, 1, #prefix) == prefix) then
      low = '(' .. before
    end
    ids = rcall('ZRANGEBYLEX', set, low, high, 'LIMIT', 0, step)
  else
    if before ~= '' and (not prefix or string.sub(before, 1, #prefix) == prefix) then
      high = '(' .. before
    end
    ids = rcall('ZREVRANGEBYLEX', set, high, low, 'LIMIT', 0, step)
  end
  local out = { #ids == step and ids[#ids] or '' }
  for at, id in ipairs(ids) do
    if #out > limit then
      out[1] = ids[at - 1]
      break
    end
    local r = fields(id, 'lang', 'label', 'created')
    local created = tonumber(r[3] or 0) or 0
    if (not lang or lang == r[1]) and (not label or label == r[2])
      and (not text or (r[2] and string.find(r[2], text, 1, true)))
      and created >= since and created < till then
      local st = view(id)
      if st and (states == '' or string.find(states, ',' .. st .. ',', 1, true)) then
        table.insert(out, row(id, st, false, false, false))
      end
    end
  end
  return out
end

-- How many go before a job, when nothing else comes: those of its tenant that go first, and as many
-- of each other tenant as it has turns before.
function ops.position()
  local id = arg(1)
  local r = fields(id, 'q', 'j')
  if view(id) ~= 'queued' then
    return false
  end
  local q, j = r[1], r[2]
  local within = rcall('ZRANK', bull(q, 'prioritized'), j)
  local wait = rcall('LLEN', bull(q, 'wait'))
  if within then
    within = within + wait
  else
    local at = rcall('LPOS', bull(q, 'wait'), j)
    within = at and wait - 1 - at or backlog(q)
  end
  local before, turns = within, within + 1
  for _, name in ipairs(rcall('LRANGE', O .. 'ring', 0, -1)) do
    if name == q then
      turns = within
    else
      before = before + math.min(backlog(name), turns)
    end
  end
  return before
end

function ops.stats()
  local t, now = marked(1), num(2)
  local queued, running, tenants, waiting = 0, 0, {}, 0
  local all = rcall('HGETALL', O .. 'queues')
  for i = 1, #all, 2 do
    local q, of = all[i], all[i + 1]
    if not t or t == of then
      local here = backlog(q) + rcall('ZCARD', bull(q, 'delayed'))
      queued = queued + here
      running = running + rcall('LLEN', bull(q, 'active'))
      if here > 0 and not tenants[of] then
        tenants[of] = true
        waiting = waiting + 1
      end
    end
  end
  local count = t and O .. 'count:' .. t or O .. 'count'
  local n = rcall('HMGET', count, 'finished', 'cancelled', 'expired', 'dead')
  local first = rcall('ZRANGE', t and O .. 'waiting:' .. t or O .. 'waiting', 0, 0, 'WITHSCORES')
  local oldest = first[2] and math.max(0, now - tonumber(first[2]))
  return {
    rcall('EXISTS', O .. 'paused'), queued, running, tonumber(n[1] or 0), tonumber(n[2] or 0),
    tonumber(n[3] or 0), tonumber(n[4] or 0), waiting, queued > 0 and oldest or false,
  }
end

function ops.queues()
  return rcall('HGETALL', O .. 'queues')
end

function ops.pause()
  if arg(1) == '1' then
    rcall('SET', O .. 'paused', '1')
  else
    rcall('DEL', O .. 'paused')
  end
  return 1
end

function ops.waiting()
  local t = marked(1)
  local set = t and O .. 'waiting:' .. t or O .. 'waiting'
  return rcall('ZRANGE', set, 0, num(2) - 1)
end

-- Dead jobs: one, or the oldest ones, of a tenant or of all.
function ops.dead()
  local t, one, limit = marked(1), arg(2), num(3)
  local ids = one ~= '' and { one } or rcall('ZRANGE', O .. 'dead', 0, -1)
  local out = {}
  for _, id in ipairs(ids) do
    local r = fields(id, 't', 'q', 'j')
    if r[1] and (not t or r[1] == t) and view(id) == 'dead' then
      table.insert(out, id)
      table.insert(out, r[2])
      table.insert(out, r[3])
      if #out >= 3 * limit then
        break
      end
    end
  end
  return out
end

-- Where a job of a tenant is that has ended.
function ops.ended()
  local r = fields(arg(1), 't', 'q', 'j')
  if not r[1] or r[1] ~= arg(2) or not ENDED[view(arg(1)) or ''] then
    return {}
  end
  return { r[2], r[3] }
end
