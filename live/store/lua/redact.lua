#!lua flags=allow-oom
-- Replaces entries of the audit log, and writes the whole stream again: a stream keeps the bytes of deleted entries.
-- KEYS trail
-- Request: RedactRequest
-- Returns {'ok'}
local changed = {}
for i, name in ipairs(request.names) do changed[name] = request.entries[i] end
local held = redis.call('XRANGE', trail, '-', '+')
redis.call('DEL', trail)
for _, entry in ipairs(held) do
  if changed[entry[1]] then
    redis.call('XADD', trail, entry[1], 'entry', changed[entry[1]])
  else
    redis.call('XADD', trail, entry[1], unpack(entry[2]))
  end
end
return {'ok'}
