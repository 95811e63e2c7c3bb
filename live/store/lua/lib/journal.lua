--@include board
-- The journal: every change is appended to a stream of the board's epoch (`journal`), from which it moves to SQL.
--
-- The field `journal` of the board's state holds "id time writer sequence bytes" of the last entry: `time` in
-- microseconds, `bytes` the size of all entries so far. Each entry names the entry before it, so that its reader
-- notices when an entry is missing, and when the store went back in time.

-- Appends an entry. Afterwards, the caller writes `board.journal` to the board's state, as `commit` does.
local function append(board, id, kind, writer, sequence, payload)
  local before, bytes = string.match(board.journal, '^(.*) (%d+)$')
  bytes = digits(bytes + #payload)
  local own = id .. ' ' .. digits(micros) .. ' ' .. writer .. ' ' .. sequence
  call('XADD', journal, id, 'h', kind .. ' ' .. bytes .. ' ' .. own .. ' ' .. before, 'd', payload)
  board.journal, board.appended = own .. ' ' .. bytes, true
end

-- Appends the request of a script, or another payload. Does nothing if the board has no journal.
local function record(board, kind, writer, sequence, payload)
  if board.journal then
    append(board, board.place .. '-0', kind, writer or '-', sequence or 0, payload or packed)
  end
end

-- Appends the tags that members received or lost without an event: only the script knows when a sum becomes zero, and in
-- which order it found the members. A member without a tag has the number 0.
local function record_tags(board, granted)
  if board.journal and #granted > 0 then
    append(board, board.place .. '-1', 'tags', '-', 0, cmsgpack.pack(granted))
  end
end
