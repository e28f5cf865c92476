-- Shared by every transition: the text of a script is this file, then the transition's own.
--
-- KEYS are the same list everywhere (keys.go), so that all of them lie in one slot of a cluster:
--   1 events, 2 agent, 3 record, 4 replies, 5 fate, 6 waiting, 7 request, 8 reply, 9 published, 10 dead, 11 agents, 12 audit,
--   13 live, 14 letters, 15 claims; from 16 on what the transition itself says
-- ARGV: 1 the cell's settings, 2 the call's arguments, both JSON; from 3 on whatever must pass through unread.
--   Wherever an entry is handled the arguments have: slug, consumer, entry (its ID in the stream), rid (the request's ID),
--   hand (which delivery of it this is, for the audit).
-- Wants are lists: [{"e": engine, "f": [features]}, ...].
-- A line that begins with "audit" is a statement of its own; it is cut out where no audit is kept.
local EVENTS, AGENT, RECORD, REPLIES, FATE, WAITING, REQUEST, REPLY, PUBLISHED, DEAD, AGENTS, AUDIT, LIVE, LETTERS, CLAIMS = unpack(KEYS)
local cfg, args = cjson.decode(ARGV[1]), cjson.decode(ARGV[2])
local call = redis.call
local clock = call('TIME')
local ms = clock[1] * 1000 + math.floor(clock[2] / 1000)
local us = string.format('%.0f', clock[1] * 1000000 + clock[2])
local function audit_log(kind, ...) call('XADD', AUDIT, '*', 'k', kind, 'a', args.slug, 'us', us, ...) end
local function audit_seen(owner, at) call('HSET', REQUEST, 'own:' .. args.hand, owner, 'chk:' .. args.hand, at) end

-- before compares two stream IDs as points in time; what is none counts as the beginning of time.
local function before(x, y)
  local a, b = x:match('^(%d+)-(%d+)$')
  local c, d = y:match('^(%d+)-(%d+)$')
  a, b, c, d = tonumber(a or 0), tonumber(b or 0), tonumber(c or 0), tonumber(d or 0)
  return a < c or (a == c and b < d)
end

-- after says that x is younger than the last end.
local function after(x)
  local ended = call('HGET', AGENT, 'ended')
  return not ended or before(ended, x)
end

-- mine says that the entry is pending with the caller; after a flush nothing is.
local function mine()
  local p = redis.pcall('XPENDING', EVENTS, cfg.group, args.entry, args.entry, 1)
  return not p.err and #p == 1 and p[1][2] == args.consumer
end

-- leased says that a lease is live, and with an epoch that it is that one's.
local function leased(epoch)
  local h = call('HMGET', AGENT, 'lease', 'until')
  return h[1] and h[2] and tonumber(h[2]) > ms and (not epoch or h[1] == epoch)
end

-- entry is a recorded engine. What was read once is not decoded again: the texts are long, and most scripts come by several times.
local decoded = {}
local function entry(engine)
  local raw = call('HGET', RECORD, engine)
  if raw and not decoded[raw] then decoded[raw] = cjson.decode(raw) end
  return raw and decoded[raw]
end

local function set_of(list)
  local set = {}
  for _, x in ipairs(list or {}) do set[x] = true end
  return set
end

-- covers says that every wanted engine is recorded with its features, in a container outside the set except.
local function covers(wants, except)
  for _, w in ipairs(wants) do
    local r = entry(w.e)
    if not r or (except and except[r.id]) then return false end
    local active = set_of(r.features)
    for _, f in ipairs(w.f) do
      if not active[f] then return false end
    end
  end
  return true
end

-- credentials is what a reply hands out of the record: {engine: {by: outcome and reason, entry: recorded}, ...}.
local function credentials(wants)
  local out = {}
  for i, w in ipairs(wants) do
    local by = call('HGET', REQUEST, 'by:' .. w.e) or '{"outcome":"reused","reason":""}'
    out[i] = '"' .. w.e .. '":{"by":' .. by .. ',"entry":' .. call('HGET', RECORD, w.e) .. '}'
  end
  return '{' .. table.concat(out, ',') .. '}'
end

-- whole is the record as it stands: {engine: recorded, ...}.
local function whole()
  local h, out = call('HGETALL', RECORD), {}
  for i = 1, #h, 2 do out[#out + 1] = '"' .. h[i] .. '":' .. h[i + 1] end
  return '{' .. table.concat(out, ',') .. '}'
end

-- digest is what the audit keeps of a reply: who was handed out, without a credential.
local function digest(wants)
  local out = {}
  for i, w in ipairs(wants) do
    local r = entry(w.e)
    out[i] = '"' .. w.e .. '":{"id":"' .. r.id .. '","born":"' .. r.born .. '","epoch":"' .. r.epoch .. '","features":"' .. table.concat(r.features, ',') .. '"}'
  end
  return '{' .. table.concat(out, ',') .. '}'
end

-- count keeps the agent among those that hold a sandbox (live: slug -> the millisecond until which) for as long as its
-- record or its lease lives, and takes it out when it has neither. Whatever changes one of the two calls it.
local function count()
  local till = 0
  local left = call('PTTL', RECORD)
  if left > 0 then till = ms + left end
  if leased() then till = math.max(till, tonumber(call('HGET', AGENT, 'until'))) end
  if till > 0 then call('ZADD', LIVE, string.format('%.0f', till), args.slug) else call('ZREM', LIVE, args.slug) end
end

-- crowded says that so many others hold a sandbox that this agent, which holds none, may not begin one.
local function crowded()
  if cfg.max == 0 then return false end
  call('ZREMRANGEBYSCORE', LIVE, '-inf', string.format('%.0f', ms))
  return not call('ZSCORE', LIVE, args.slug) and call('ZCARD', LIVE) >= cfg.max
end

-- hold gives what was claimed for the agent its whole life again: twice the record's.
local function hold()
  for _, id in ipairs(call('SMEMBERS', CLAIMS)) do call('PEXPIRE', cfg.claim .. id, 2 * cfg.ttl) end
  call('PEXPIRE', CLAIMS, 2 * cfg.ttl)
end

-- claim writes what a container from a pool was claimed for. It is written once: who calls it has seen that there is none.
local function claim(id, ...)
  call('HSET', cfg.claim .. id, 'slug', args.slug, 'engine', args.engine, ...)
  call('SADD', CLAIMS, id)
  hold()
end

-- claimed says that a container was claimed, or that nobody may claim it any more.
local function claimed(id) return call('EXISTS', cfg.claim .. id) == 1 end

-- slide gives the record, and what is known of its containers, the whole life again.
local function slide()
  call('PEXPIRE', RECORD, cfg.ttl)
  call('PEXPIRE', FATE, 2 * cfg.ttl)
  hold()
  count()
end

local function mark(id, fate)
  call('HSET', FATE, id, fate)
  call('PEXPIRE', FATE, 2 * cfg.ttl)
end

-- notice tells the gateway that wants to know that a reply stream has something new.
local function notice()
  local gateway = call('HGET', REQUEST, 'gateway')
  if gateway and gateway ~= '' then
    local inbox = cfg.inbox .. gateway
    call('XADD', inbox, 'MAXLEN', '~', 10000, '*', 'rid', args.rid, 'slug', args.slug)
    call('PEXPIRE', inbox, cfg.reply_ttl)
  end
end

local function progress(line)
  call('XADD', REPLY, 'MAXLEN', '~', 1000, '*', 'progress', line)
  call('PEXPIRE', REPLY, cfg.reply_ttl)
  notice()
end

-- announce tells once that a request was accepted or queued; either keeps it from being late.
local function announce(stage)
  call('HSET', REQUEST, 'seen', 1)
  if call('HSETNX', REQUEST, 'told:' .. stage, 1) == 1 then progress('{"stage":"' .. stage .. '"}') end
end

-- inline tells which place a request has in the line: behind those who wait within the worker, and the older ones that wait
-- here, of which up to a hundred are counted. It tells each place once.
local function inline(ahead)
  local older = redis.pcall('XPENDING', EVENTS, cfg.group, '-', args.entry, 100, cfg.lined)
  local place = ahead + 1 + (older.err and 0 or #older)
  call('HSET', REQUEST, 'seen', 1)
  if call('HGET', REQUEST, 'place') == tostring(place) then return end
  call('HSET', REQUEST, 'place', place)
  progress('{"stage":"queued","position":' .. place .. '}')
end

-- say writes the terminal reply, if none stands. What was said before and has lapsed since is said again, as it was,
-- but without credentials: what is recorded now may be another's. what: wants (hands out their credentials), refusal, body, task.
local function say(state, what)
  local said = call('HGET', REQUEST, 'state')
  if said then
    if call('EXISTS', REPLY) == 1 then return end
    state, what = said, { refusal = call('HGET', REQUEST, 'refusal') or nil, blank = said == 'ok' }
  end
  local fields = { 'state', state, 'rid', args.rid, 'task', what.task or '', 'expires', ms + cfg.ttl }
  local function add(name, value)
    fields[#fields + 1] = name
    fields[#fields + 1] = value
  end
  if what.wants then add('engines', credentials(what.wants)) elseif what.blank then add('engines', '') end
  if what.refusal then
    add('refusal', what.refusal)
    call('HSET', REQUEST, 'refusal', what.refusal)
  end
  if what.body then add('body', what.body) end
  call('XADD', REPLY, '*', unpack(fields))
  call('PEXPIRE', REPLY, cfg.reply_ttl)
  call('HSET', REQUEST, 'state', state)
  call('PEXPIRE', REQUEST, cfg.remember)
  if what.wants then
    call('SADD', REPLIES, REPLY)
    call('PEXPIRE', REPLIES, cfg.reply_ttl)
    slide()
  end
  notice()
  audit_log('reply', 'rid', args.rid, 'st', state, 'p', what.wants and digest(what.wants) or '', 'born', call('HGET', REQUEST, 'born') or args.entry, 'own', call('HGET', REQUEST, 'own:' .. (args.hand or '')) or '', 'chk', call('HGET', REQUEST, 'chk:' .. (args.hand or '')) or us)
end

-- finish takes the entry out of the stream: acknowledged, deleted, no longer counted as waiting.
local function finish()
  call('XACK', EVENTS, cfg.group, args.entry)
  call('XDEL', EVENTS, args.entry)
  if args.slug ~= '' then call('SREM', WAITING, args.entry) end
end

-- letter keeps the entry among the dead letters, its fields cut to 4 KiB each, and counts it by its cause.
local function letter(cause, reason)
  local fields = { 'entry', args.entry, 'cause', cause, 'reason', reason }
  local found = call('XRANGE', EVENTS, args.entry, args.entry)[1]
  local whole = true
  for i, x in ipairs(found and found[2] or {}) do
    if #x > 4096 or i > 128 then whole = false end
    if i > 128 then break end
    fields[#fields + 1] = (i % 2 == 1 and 'was:' or '') .. x:sub(1, 4096)
  end
  if not whole then
    fields[#fields + 1] = 'cut'
    fields[#fields + 1] = '1'
  end
  call('XADD', DEAD, 'MAXLEN', '~', 1000, '*', unpack(fields))
  call('HINCRBY', LETTERS, cause, 1)
end

-- drop ends a sandbox: no lease, no record, no credentials left in a reply. A reply stream is made anew under the ID its
-- terminal entry had, so that a reader on its way finds it, and nothing of the old one stays in memory.
local function drop()
  call('HDEL', AGENT, 'lease', 'until', 'nonce')
  call('DEL', RECORD)
  for _, key in ipairs(call('SMEMBERS', REPLIES)) do
    local last = call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
    local left = call('PTTL', key)
    if last then
      local fields = last[2]
      for i = 1, #fields, 2 do
        if fields[i] == 'engines' then fields[i + 1] = '' end
      end
      call('DEL', key)
      call('XADD', key, last[1], unpack(fields))
      call('PEXPIRE', key, math.max(left, 1))
    end
  end
  call('DEL', REPLIES)
  count()
end

-- stop raises the watermark: everything born up to x has ended. That says of every container known so far what its fate says,
-- and for ever, so the fates go: an agent that is always at work would gather them without end.
local function stop(x, kind)
  if after(x) then call('HSET', AGENT, 'ended', x) end
  drop()
  call('DEL', FATE)
  audit_log('end', 'id', x, 'typ', kind)
end

-- leave: the owner has gone. Its sandbox ends, but no request becomes stale.
local function leave(by)
  audit_log('leave', 'own', call('HGET', AGENT, 'owner') or '', 'by', by)
  call('HDEL', AGENT, 'owner')
  drop()
end

-- shelter notes that a container of this host is recorded: an end goes to every host.
local function shelter(host)
  local hosts = call('HGET', AGENT, 'hosts') or ''
  if host and host ~= '' and not (',' .. hosts .. ','):find(',' .. host .. ',', 1, true) then
    call('HSET', AGENT, 'hosts', hosts == '' and host or hosts .. ',' .. host)
  end
end

-- known makes the agent's hash where it is absent, and says when that was.
local function known()
  call('HSETNX', AGENT, 'since', us)
  call('SADD', AGENTS, args.slug)
end
