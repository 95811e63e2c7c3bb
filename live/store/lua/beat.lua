#!lua flags=allow-oom
-- Records that a process is alive, and names all processes that are.
-- KEYS[1] processes — hash: process, the time of its last beat (ms); expires when no process is left
-- Request: BeatRequest
-- Returns {now, process, ...} — now in milliseconds
local request = cmsgpack.unpack(ARGV[1])
local processes = KEYS[1]
--@include clock

local reply, held = {digits(now), request.process}, redis.call('HGETALL', processes)
for i = 1, #held, 2 do
  if held[i] ~= request.process then
    if math.abs(now - tonumber(held[i + 1])) < request.ttl then
      reply[#reply + 1] = held[i]
    else
      redis.call('HDEL', processes, held[i])
    end
  end
end
redis.call('HSET', processes, request.process, digits(now))
redis.call('PEXPIRE', processes, request.ttl)
return reply
