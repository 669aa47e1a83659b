-- prelude: what every script begins with; Python puts it before each of them.
--
-- KEYS are the same for all: one provider's. The server's clock is the only one. A task's state is
-- `generation:token:crashes`. The gate is what all workers know of the provider: its pause, its probe (the one attempt
-- after a pause), its troubles in a row, and what is left of its rate.
local queue, leases, state, tasks, dead, gate, jobs, groups = unpack(KEYS)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function parse(text)
  local generation, token, crashes = string.match(text or '', '^(%d+):([^:]*):(%d+)$')
  return generation or '0', token or '', tonumber(crashes) or 0
end

-- A call with many arguments of one kind; none for none. Calls come with at most 200 tasks.
local function call(verb, key, arguments)
  if #arguments == 0 then return {} end
  return redis.call(verb, key, unpack(arguments))
end

-- Every nth of ARGV from `first` on: the names, tokens or generations of the tasks in a call.
local function column(first, width)
  local values = {}
  for i = first, #ARGV, width do values[#values + 1] = ARGV[i] end
  return values
end

-- For each task of a settling call, name, token, generation first: 1 if it is held so, else 0; and the names held.
local function held_rows(first, width)
  local names, replies, held = column(first, width), {}, {}
  local states = call('HMGET', state, names)
  for i, name in ipairs(names) do
    local generation, token = parse(states[i])
    local at = first + (i - 1) * width
    local is_held = states[i] and token == ARGV[at + 1] and generation == ARGV[at + 2]
    replies[i] = is_held and 1 or 0
    if is_held then held[#held + 1] = name end
  end
  return replies, held
end

-- Leave nothing of these tasks; how many traces there were.
local function drop(names)
  if #names == 0 then return 0 end
  return call('ZREM', leases, names) + call('ZREM', queue, names) + call('ZREM', dead, names)
    + call('HDEL', state, names) + call('HDEL', tasks, names) + call('SREM', jobs, names) + call('HDEL', groups, names)
end

-- How many attempts may begin, the ms until one more may, and the gate's fields to write if some do.
-- limits: parallel, open jobs, ms per token, burst; 0 is no limit. `live`: attempts under way.
local function allowance(limits, live, wanted)
  local stored = redis.call('HMGET', gate, 'until', 'probe', 'tokens', 'at')
  local paused_until, probe = tonumber(stored[1]), tonumber(stored[2]) or 0
  if paused_until and now < paused_until then return 0, paused_until - now, {} end
  if paused_until and now < probe then return 0, probe - now, {} end
  local fields, wait_ms = { probing = paused_until ~= nil }, 1000
  local allowed = fields.probing and math.min(wanted, 1) or wanted
  if limits.parallel > 0 then allowed = math.min(allowed, limits.parallel - live) end
  if limits.ms_per_token > 0 then
    local stored_tokens, at = tonumber(stored[3]) or limits.burst, tonumber(stored[4]) or now
    fields.tokens = math.min(limits.burst, stored_tokens + (now - at) / limits.ms_per_token)
    local whole = math.floor(fields.tokens)
    if whole < allowed then
      allowed, wait_ms = whole, math.ceil((1 + whole - fields.tokens) * limits.ms_per_token)
    end
  end
  return math.max(allowed, 0), wait_ms, fields
end

-- Write down that attempts have begun. A probe is out until its lease ends.
local function admit(fields, begun, lease_ms)
  if begun == 0 then return end
  if fields.probing then redis.call('HSET', gate, 'probe', now + lease_ms) end
  if fields.tokens then
    redis.call('HSET', gate, 'tokens', string.format('%.6f', fields.tokens - begun), 'at', now)
  end
end

-- The provider answers as it should: no pause, no probe, no troubles in a row.
local function recover()
  if redis.call('EXISTS', gate) == 1 then redis.call('HDEL', gate, 'until', 'probe', 'troubles', 'pauses') end
end

