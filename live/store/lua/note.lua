#!lua flags=allow-oom
-- Adds an entry to the audit log. This works when memory is full, because some acts free memory.
-- KEYS trail
-- Request: NoteRequest
-- Returns {'ok'}
redis.call('XADD', trail, 'MAXLEN', '~', request.length, '*', 'entry', request.entry)
return {'ok'}
