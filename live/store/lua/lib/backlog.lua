-- Step: refuse a batch when too much of the journal waits to be moved to SQL.
if board.journal and request.backlog then
  local waiting = tonumber(string.match(board.journal, '%d+$')) - tonumber(call('HGET', meta, 'drained') or 0)
  if waiting + #packed > request.backlog then return {'backlog', digits(waiting)} end
end
