#!lua
-- Registers a member for a contest, or replaces its metadata.
-- KEYS meta, entrants, journal
-- Request: EnterRequest
-- Returns {'ok', offset, new} — new is 1 when the member was not registered before
--         {'full'} — the board has as many registered members as it may have
--@include journal
--@include opened
local member, metadata = request.member, request.metadata
local held = call('HGET', entrants, member)
if held == metadata then return {'ok', string.format('%.0f', board.offset), 0} end
if not held and call('HLEN', entrants) >= request.most then return {'full'} end

announce(board)
record(board, 'enter')
call('HSET', entrants, member, metadata)
return {'ok', commit(board), held and 0 or 1}
