-- rest: a run leaves this provider, and plans the next one.
--
-- ARGV      1 parallel  2 open jobs  3 ms per attempt  4 burst (0: no limit)  5 '1': messages are sent
--           6 run  7 '1': it may go on  8 the least ms until the next run for what is due, of one that has claimed nothing
-- Returns   ms until a message must start a run, -1 for none; ms until an attempt may begin for which the run has stayed,
--           since that is at hand, -1: it has left
local limits, run, may_go_on, floor_ms = limits_at(1), ARGV[6], ARGV[7] == '1', tonumber(ARGV[8])
local HAND_MS = 1000

redis.call('ZREMRANGEBYSCORE', runs, '-inf', now) -- those are dead
local wait_ms = may_go_on and not is_served(run) and begins_in(limits, floor_ms) or math.huge
if wait_ms <= HAND_MS then return { -1, wait_ms } end
redis.call('ZREM', runs, run)
forget_plans()
if redis.call('EXISTS', queue) == 0 then redis.call('DEL', plans) end -- nothing is left behind
return { plan(limits, floor_ms), -1 }
