#!lua
-- Registers a member for a contest, or replaces its metadata.
-- KEYS[1] meta — hash: the board's state
-- KEYS[2] entrants — hash: member, JSON
-- KEYS[3] journal — stream: what SQL does not hold yet
-- Request: EnterRequest
-- Returns {'ok', offset, new} — new is 1 when the member was not registered before
--         {'full'} — the board has as many registered members as it may have
--         {'epoch', epoch} — the board has another epoch; '' if there is no board
--         {'reign', offset, link, epoch, resending} — nobody has checked the board after a failover; see `lib/reign`
local packed = ARGV[1]
local request = cmsgpack.unpack(packed)
local reign = ARGV[2] or ''
local meta, entrants, journal = unpack(KEYS)
--@include clock
--@include reign
--@include board
--@include journal
local board, refusal = open_board()
if refusal then return refusal end
local member, metadata = request.member, request.metadata
local held = call('HGET', entrants, member)
if held == metadata then return {'ok', string.format('%.0f', board.offset), 0} end
if not held and call('HLEN', entrants) >= request.most then return {'full'} end

announce(board)
record(board, 'enter')
call('HSET', entrants, member, metadata)
return {'ok', commit(board), held and 0 or 1}
