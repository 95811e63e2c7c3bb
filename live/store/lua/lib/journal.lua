-- The journal: every change is appended to a stream of the board's epoch (`journal`), from which it moves to SQL.
--
-- The field `journal` of the board's state holds "id time writer sequence bytes" of the last entry: `time` in
-- microseconds, `bytes` the size of all entries so far. Each entry names the one before it, so that its reader notices
-- when one is missing, and when the store went back in time.

-- Appends an entry. Call this before the first write, and `commit` at the end.
local function append(board, id, kind, writer, sequence, payload)
  local before, bytes = string.match(board.journal, '^(.*) (%d+)$')
  bytes = digits(bytes + #payload)
  local own = string.format('%s %s%06d %s %s', id, time[1], time[2], writer, sequence)
  call('XADD', journal, id, 'h', kind .. ' ' .. bytes .. ' ' .. own .. ' ' .. before, 'd', payload)
  board.journal, board.appended = own .. ' ' .. bytes, true
end

-- Appends the request of a script. A board without a journal has no such field.
local function record(board, kind, writer, sequence)
  if board.journal then append(board, board.place .. '-0', kind, writer or '-', sequence or 0, packed) end
end

-- Appends the tags that members received without an event: only the script knows them, because they depend on the order
-- in which it found the members. A member without a tag has the number 0.
local function record_tags(board, granted)
  if board.journal and #granted > 0 then
    append(board, board.place .. '-1', 'tags', '-', 0, cmsgpack.pack(granted))
  end
end
