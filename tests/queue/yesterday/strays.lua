-- strays: entries of tasks that are neither in the queue nor dead; changes nothing.
--
-- ARGV      1 which of KEYS to go through  2 where to go on, 0 first
-- Returns   where to go on (0: that was all), the names of such tasks
local key, cursor = KEYS[tonumber(ARGV[1])], ARGV[2]
local SCAN = { hash = 'HSCAN', zset = 'ZSCAN', set = 'SSCAN' }
local STEP = 500

local scan = SCAN[redis.call('TYPE', key).ok]
if not scan then return { '0', {} } end
local found = redis.call(scan, key, cursor, 'COUNT', STEP)
local entries, strays = found[2], {}
for i = 1, #entries, scan == 'SSCAN' and 1 or 2 do
  if not redis.call('ZSCORE', queue, entries[i]) and not redis.call('ZSCORE', dead, entries[i]) then
    strays[#strays + 1] = entries[i]
  end
end
return { found[1], strays }
