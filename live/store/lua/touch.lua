#!lua flags=allow-oom
-- Records that somebody uses a board.
-- KEYS meta
-- Request: TouchRequest
-- Returns {'ok'}
--@include opened
call('HSET', meta, 'used', digits(store_now))
return {'ok'}
