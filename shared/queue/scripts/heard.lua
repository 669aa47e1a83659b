-- heard: what the replies of attempts tell the gate, for settle alone.
--
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
