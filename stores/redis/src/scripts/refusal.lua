-- Why nothing may be reserved of what is stored here, or be written over it.
local function refusal(stored, here, failover)
  if not here.master then
    return 'replica'
  elseif stored == 'foreign' then
    return 'foreign'
  elseif stored and failover ~= 'allow' and stored.replid ~= here.replid and not string.match(here.earlier, '^0*$') then
    -- It was written by another server, of which this one was a replica: what that one wrote last may be missing here.
    return 'promoted'
  end
  return nil
end

