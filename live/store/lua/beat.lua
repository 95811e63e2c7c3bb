#!lua flags=allow-oom
-- Records that a process is alive, and names all live processes.
-- KEYS processes, process_versions, process_faults
-- Request: BeatRequest
-- Returns {now, process, version, ...} — now in milliseconds; a version is '' where a process has reported none
--@include clock

local reply, held = {digits(now), request.process, request.version}, redis.call('HGETALL', processes)
for i = 1, #held, 2 do
  if held[i] ~= request.process then
    if math.abs(now - tonumber(held[i + 1])) < request.ttl then
      reply[#reply + 1], reply[#reply + 2] = held[i], redis.call('HGET', process_versions, held[i]) or ''
    else
      redis.call('HDEL', processes, held[i])
      redis.call('HDEL', process_versions, held[i])
      redis.call('HDEL', process_faults, held[i])
    end
  end
end
redis.call('HSET', processes, request.process, digits(now))
redis.call('PEXPIRE', processes, request.ttl)
redis.call('HSET', process_versions, request.process, request.version)
redis.call('PEXPIRE', process_versions, request.ttl)
if request.fault == '' then
  redis.call('HDEL', process_faults, request.process)
else
  redis.call('HSET', process_faults, request.process, request.fault)
  redis.call('PEXPIRE', process_faults, request.ttl)
end
return reply
