-- gate: what all workers know of the provider, in one hash of these fields:
--   until     when its pause ends or ended, ms; until a good reply after that removes it, attempts are probes
--   probe     the task that the last probe asks about; the probe is out for as long as that is leased
--   troubles  how many there were in a row
--   pauses    how many pauses there were in a row
--   slow      after a pause: how many attempts may be under way at once, one more with each good reply
--   full_at   when its rate will have saved up a whole burst, ms
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

-- What the rate has saved up, in attempts, and how many ms it lacks to a whole burst.
local function saved_up(limits, full_at)
  local whole_ms = limits.burst * limits.attempt_ms
  local lacking_ms = math.max(0, (full_at or now) - now)
  -- further off than ever: the clock went back, or the limits were others; one attempt sets it right
  if lacking_ms > whole_ms + 1 then lacking_ms = whole_ms - limits.attempt_ms end
  return math.max(0, whole_ms - lacking_ms) / limits.attempt_ms, lacking_ms
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
    local saved, lacking_ms = saved_up(limits, full_at)
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
