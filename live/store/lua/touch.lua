#!lua flags=allow-oom
-- Records that somebody uses a board.
-- KEYS[1] meta — hash: the board's state
-- Request: TouchRequest
-- Returns {'ok'}
--         {'epoch', epoch} — the board has another epoch; '' if there is no board
--         {'reign', offset, link, epoch, resending} — nobody has checked the board after a failover; see `lib/reign`
local request = cmsgpack.unpack(ARGV[1])
local reign = ARGV[2] or ''
local meta = KEYS[1]
--@include clock
--@include reign
--@include board
local _, refusal = open_board()
if refusal then return refusal end
call('HSET', meta, 'used', digits(now))
return {'ok'}
