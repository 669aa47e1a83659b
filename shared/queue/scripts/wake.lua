-- wake: when a run must come for what waits here. A plan is a hint: whoever gets one sends a message that starts a run
-- then. Lost, doubled or late, it costs no task: the schedule starts a run each minute, whatever was planned.
--
-- Where a run is alive, nobody plans: it looks again before it is taken for dead, and `rest` plans when it leaves.
--   runs     run -> until when it is alive, ms, where anything waits
--   plans    messages under way, each when it comes, ms
local SOON_MS = 75000 -- what is further off, the schedule's run plans when it is near: no chains, no stale messages
local STANDS_MS, NEAR_MS = 2000, 500

local ALIVE_MS = 62000 -- the longest that a run may be alive after a claim: what is beyond that, a clock has left

-- Whether a run is there, another than this one if it is named.
local function is_served(but)
  local own = but and tonumber(redis.call('ZSCORE', runs, but) or 0) or 0
  return redis.call('ZCOUNT', runs, '(' .. now, now + ALIVE_MS) > (own > now and 1 or 0)
end

-- Plans whose time has come are none any more for a run that is here.
local function forget_plans() redis.call('ZREMRANGEBYSCORE', plans, '-inf', now + NEAR_MS) end

-- In how many ms an attempt may begin, as far as is known; nil if nothing waits that may go. What is due already and was
-- not given to who asks is not for `floor_ms`, or run after run would find nothing.
local function begins_in(limits, floor_ms)
  local first
  if limits.open_jobs == 0 or redis.call('SCARD', jobs) < limits.open_jobs then
    first = redis.call('ZRANGEBYSCORE', queue, '(0', '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  else
    first = first_with_job()
  end
  if not first then return nil end
  local allowed, gate_ms = allowance(limits, redis.call('ZCOUNT', leases, '(' .. now, '+inf'), 1)
  local due_ms = math.ceil(first - now)
  return math.max(due_ms > 0 and due_ms or floor_ms, allowed == 0 and gate_ms or 0)
end

-- The ms until a message must start a run; -1 for none: a run is there, or one is planned.
local function plan(limits, floor_ms)
  if not limits.plans or is_served() then return -1 end
  local wait_ms = begins_in(limits, floor_ms)
  if not wait_ms or wait_ms > SOON_MS then return -1 end
  if redis.call('ZCOUNT', plans, now - STANDS_MS, now + wait_ms + NEAR_MS) > 0 then return -1 end
  redis.call('ZADD', plans, now + wait_ms, string.format('%.0f', now + wait_ms))
  return wait_ms
end
