#!lua flags=allow-oom
-- Records that a process is alive, and names all live processes.
-- KEYS[1] processes — hash: process, the time of its last beat (ms); expires when no process is left
-- KEYS[2] versions — hash: process, the version of the definitions that it runs; expires like `processes`
-- KEYS[3] faults — hash: process, why it is not ready; expires like `processes`
-- Request: BeatRequest
-- Returns {now, process, version, ...} — now in milliseconds; a version is '' where a process has reported none
local request = cmsgpack.unpack(ARGV[1])
local processes, versions, faults = KEYS[1], KEYS[2], KEYS[3]
--@include clock

local reply, held = {digits(now), request.process, request.version}, redis.call('HGETALL', processes)
for i = 1, #held, 2 do
  if held[i] ~= request.process then
    if math.abs(now - tonumber(held[i + 1])) < request.ttl then
      reply[#reply + 1], reply[#reply + 2] = held[i], redis.call('HGET', versions, held[i]) or ''
    else
      redis.call('HDEL', processes, held[i])
      redis.call('HDEL', versions, held[i])
      redis.call('HDEL', faults, held[i])
    end
  end
end
redis.call('HSET', processes, request.process, digits(now))
redis.call('PEXPIRE', processes, request.ttl)
redis.call('HSET', versions, request.process, request.version)
redis.call('PEXPIRE', versions, request.ttl)
if request.fault == '' then
  redis.call('HDEL', faults, request.process)
else
  redis.call('HSET', faults, request.process, request.fault)
  redis.call('PEXPIRE', faults, request.ttl)
end
return reply
