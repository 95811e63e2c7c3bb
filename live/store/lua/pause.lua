#!lua flags=allow-oom
-- Begins a swap of the board's contents, begins a round of it, or ends it. A round pauses the board, or ends the pause.
--
-- While the board is paused, `add.lua` answers 'paused'. The pause ends by itself. It only lets the swap make progress:
-- what the swap relies on is the last entry of the journal, which `swap.lua` compares.
-- KEYS meta — hash: the board's state; its field `swap` is the token of the swap and the number of the round
-- Request: PauseRequest
-- Returns {'ok', link, now} — the last entry of the journal (see `link_of`), and the time by the board's clock, in milliseconds
--         {'taken'} — the swap has ended, or has a later round
--@include opened
local token, number = string.match(call('HGET', meta, 'swap') or '', '^(%S+) (%d+)$')
if not request.begins and (token ~= request.token or tonumber(number) > request.number) then return {'taken'} end
if request.ends then
  call('HDEL', meta, 'swap')
else
  call('HSET', meta, 'swap', request.token .. ' ' .. digits(request.number))
end
if request.ms then
  call('HSET', meta, 'paused', digits(store_now + request.ms))
else
  call('HDEL', meta, 'paused')
end
return {'ok', link_of(board), digits(now)}
