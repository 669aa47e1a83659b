-- gate: what all workers know of the provider, in one hash of these fields:
--   until     when its pause ends or ended, ms; until a good reply after that removes it, attempts are probes
--   probe     the task that the last probe asks about; the probe is out for as long as that is leased
--   troubles  how many there were in a row
--   pauses    how many pauses there were in a row
--   slow      after a pause: how many attempts may be under way at once, one more with each good reply
--   full_at   when its rate will have saved up a whole burst, ms
--   planned   see wake
local AGAIN_MS = 1000 -- how soon to look again for what somebody else's attempt may free

-- A number from the gate, nil for junk.
local function number(text)
  local value = tonumber(text or '')
  return value and value >= 0 and value <= 2 ^ 53 and value or nil
end

-- When the pause ends or ended, nil for none or junk.
local function pause_end(text)
  local at = number(text)
  return at and at <= HORIZON and at or nil
end

-- Five of ARGV: how many attempts at once, jobs open at once, ms per attempt, how many of those may be saved up (0: any),
-- '1': messages that start runs are sent (see wake).
local function limits_at(first)
  return {
    parallel = tonumber(ARGV[first]), open_jobs = tonumber(ARGV[first + 1]),
    attempt_ms = tonumber(ARGV[first + 2]), burst = tonumber(ARGV[first + 3]), plans = ARGV[first + 4] == '1',
  }
end

-- How many of `wanted` attempts may begin while `live` are under way, the ms until more may, and a pass for `admit`.
local function allowance(limits, live, wanted)
  local stored = redis.call('HMGET', gate, 'until', 'probe', 'full_at', 'slow')
  local paused_until, full_at, slow, pass = pause_end(stored[1]), number(stored[3]), number(stored[4]), {}
  local allowed, wait_ms = wanted, AGAIN_MS
  if paused_until then
    if now < paused_until then return 0, math.ceil(paused_until - now), pass end
    local probe_ends = stored[2] and redis.call('ZSCORE', leases, stored[2])
    if probe_ends and now < tonumber(probe_ends) then return 0, wait_ms, pass end
    allowed, pass.is_probe = math.min(allowed, 1), true
  elseif slow then
    allowed, pass.slow = math.min(allowed, math.floor(slow) - live), true
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
-- `reply` of each row is its own: 1 good, -1 an error, 0 neither. The probe's ends a pause that is over, and
-- what waits comes slowly at first, or begins another; other attempts may have begun before it. So do `patience`
-- troubles in a row begin one, twice as long each time in a row. A pause under way is only ever lengthened.
local HEARD, FULL_SPEED = 5, 200
local function heard(settled)
  local pause_ms, troubles, patience = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
  local stored = redis.call('HMGET', gate, 'until', 'troubles', 'pauses', 'probe', 'slow')
  local probed, good = 0, 0
  for i, reply in ipairs(settled.reply) do
    if reply == '1' then good = good + 1 end
    if settled.name[i] == stored[4] then probed = tonumber(reply) end
  end
  local paused_until, pauses, slow = pause_end(stored[1]), number(stored[3]) or 0, number(stored[5])
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
    gone[#gone + 1] = 'slow'
  elseif probed > 0 and not is_paused then
    gone, set = { 'troubles', 'until', 'probe', 'pauses' }, { 'slow', 1 + good }
  elseif slow and good > 0 and not paused_until then
    if slow + good < FULL_SPEED then set[#set + 1], set[#set + 2] = 'slow', slow + good else gone[#gone + 1] = 'slow' end
  end
  return gone, set
end

-- Write into the gate what was heard or seen, a removal first.
local function note(gone, set)
  call('HDEL', gate, gone)
  call('HSET', gate, set)
  if redis.call('EXISTS', queue) == 0 then redis.call('HDEL', gate, 'slow') end -- nothing is held back
end
