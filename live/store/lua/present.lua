#!lua flags=allow-oom
-- Records how many viewers a process has on a board, and counts the viewers of all processes.
-- A process that has not reported for a while has crashed: its viewers do not count, and the next report deletes them.
-- KEYS meta, viewers
-- Request: PresenceRequest
-- Returns {'ok', total} — the viewers of all processes
--         {'gone'} — there is no such board
--@include reports
local process, count, ttl = request.process, request.count, request.ttl
if redis.call('EXISTS', meta) == 0 then return {'gone'} end

local others, old = reported(viewers, process, ttl)
if count > 0 then
  redis.call('HSET', viewers, process, string.format('%.0f %.0f', count, now))
  redis.call('PEXPIRE', viewers, ttl)
else
  old[#old + 1] = process
end
if #old > 0 then redis.call('HDEL', viewers, unpack(old)) end
return {'ok', others + count}
