#!lua flags=allow-oom
-- Adds an entry to the audit log. This works when memory is full, because some acts free memory.
-- KEYS[1] trail — stream: the audit log
-- Request: NoteRequest
-- Returns {'ok'}
local request = cmsgpack.unpack(ARGV[1])
local trail = KEYS[1]
redis.call('XADD', trail, 'MAXLEN', '~', request.length, '*', 'entry', request.entry)
return {'ok'}
