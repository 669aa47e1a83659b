-- prelude: what every script begins with; Python puts it before each of them.
--
-- KEYS are the same for all: one provider's. The server's clock is the only one. A task's state is
-- `generation:token:crashes`. The gate is what all workers know of the provider:
--   until     when its pause ends or ended, ms; until a good reply after that removes it, attempts are probes
--   probe     the task that the last probe asks about; the probe is out for as long as that is leased
--   troubles  how many there were in a row
--   pauses    how many pauses there were in a row
--   full_at   when its rate will have saved up a whole burst, ms
--   cursor    how far claim has looked into a long backlog
local queue, leases, state, tasks, dead, gate, jobs, groups, served = unpack(KEYS)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- How soon to look again for what somebody else's attempt may free, in ms.
local AGAIN_MS = 1000

local function parse(text)
  local generation, token, crashes = string.match(text or '', '^(%d+):([^:]*):(%d+)$')
  return generation or '0', token or '', tonumber(crashes) or 0
end

-- A number from the gate, nil for junk.
local function number(text)
  local value = tonumber(text or '')
  return value and value >= 0 and value <= 2 ^ 53 and value or nil
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

-- These tasks have no group any more; with the last of them goes what is known of groups' turns.
local function ungroup(names)
  local gone = call('HDEL', groups, names)
  if redis.call('EXISTS', groups) == 0 then redis.call('DEL', served) end
  return gone
end

-- Leave nothing of these tasks; how many traces there were.
local function drop(names)
  if #names == 0 then return 0 end
  return call('ZREM', leases, names) + call('ZREM', queue, names) + call('ZREM', dead, names)
    + call('HDEL', state, names) + call('HDEL', tasks, names) + call('SREM', jobs, names) + ungroup(names)
end

-- Four of ARGV: how many attempts at once, jobs open at once, ms per attempt, how many of those may be saved up; 0: any.
local function limits_at(first)
  return {
    parallel = tonumber(ARGV[first]), open_jobs = tonumber(ARGV[first + 1]),
    attempt_ms = tonumber(ARGV[first + 2]), burst = tonumber(ARGV[first + 3]),
  }
end

-- How many of `wanted` attempts may begin while `live` are under way, the ms until more may, and a pass for `admit`.
local function allowance(limits, live, wanted)
  local stored = redis.call('HMGET', gate, 'until', 'probe', 'full_at')
  local paused_until, full_at, pass = number(stored[1]), number(stored[3]), {}
  local allowed, wait_ms = wanted, AGAIN_MS
  if paused_until then
    if now < paused_until then return 0, math.ceil(paused_until - now), pass end
    local probe_ends = stored[2] and redis.call('ZSCORE', leases, stored[2])
    if probe_ends and now < tonumber(probe_ends) then return 0, wait_ms, pass end
    allowed, pass.is_probe = math.min(allowed, 1), true
  end
  if limits.parallel > 0 then allowed = math.min(allowed, limits.parallel - live) end
  if limits.attempt_ms > 0 then
    local whole_ms = limits.burst * limits.attempt_ms
    local lacking_ms = math.max(0, (full_at or now) - now)
    -- further off than ever: the clock went back, or the limits were others; one attempt sets it right
    if lacking_ms > whole_ms + 1 then lacking_ms = whole_ms - limits.attempt_ms end
    local saved = math.max(0, whole_ms - lacking_ms) / limits.attempt_ms
    if math.floor(saved) < allowed then
      allowed, wait_ms = math.floor(saved), math.ceil((1 - saved % 1) * limits.attempt_ms)
    end
    pass.full_at, pass.attempt_ms = now + lacking_ms, limits.attempt_ms
  end
  return math.max(allowed, 0), wait_ms, pass
end

-- Write down that attempts about these tasks begin.
local function admit(pass, names)
  if #names == 0 then return end
  if pass.is_probe then redis.call('HSET', gate, 'probe', names[1]) end
  if pass.full_at then
    redis.call('HSET', gate, 'full_at', string.format('%.17g', pass.full_at + #names * pass.attempt_ms))
  end
end

-- What a settling call's replies say of the provider, as fields of the gate to delete and to set. The first of ARGV:
--   1 pause in ms (0: none)  2 troubles (-1: it is well)  3 patience  4 pause in ms for troubles  5 the longest
-- The last of each row, `width` long, is its own reply: 1 good, -1 an error, 0 neither. The probe's, if its row is 1 in
-- `settled`, ends a pause that is over or begins another; other attempts may have begun before it. So do `patience`
-- troubles in a row begin one, twice as long each time in a row. A pause under way is only ever lengthened.
local HEARD = 5
local function heard(settled, width)
  local pause_ms, troubles, patience = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
  local stored = redis.call('HMGET', gate, 'until', 'troubles', 'pauses', 'probe')
  local probed = 0
  for i, is_settled in ipairs(settled) do
    local last = HEARD + i * width
    if is_settled == 1 and ARGV[last - width + 1] == stored[4] then probed = tonumber(ARGV[last]) end
  end
  local paused_until, pauses = number(stored[1]), number(stored[3]) or 0
  local is_paused = paused_until and now < paused_until
  local gone, set = {}, {}
  local in_a_row = (number(stored[2]) or 0) + troubles
  if troubles ~= 0 or pause_ms > 0 then gone = { 'troubles' } end
  if troubles > 0 then set = { 'troubles', in_a_row } end
  if not is_paused and (paused_until and probed < 0 or troubles > 0 and in_a_row >= patience) then
    pause_ms = math.max(pause_ms, math.min(tonumber(ARGV[5]), tonumber(ARGV[4]) * 2 ^ pauses))
  end
  if pause_ms > 0 then
    if not is_paused then pauses = pauses + 1 end
    set[#set + 1], set[#set + 2] = 'until', math.max(paused_until or 0, now + math.ceil(pause_ms))
    set[#set + 1], set[#set + 2] = 'pauses', pauses
  elseif probed > 0 and not is_paused then
    gone = { 'troubles', 'until', 'probe', 'pauses' }
  end
  return gone, set
end

-- Write into the gate what was heard or seen, a removal first.
local function note(gone, set)
  call('HDEL', gate, gone)
  call('HSET', gate, set)
end

