# What tests could not do on this machine, one line each with the reason, from a log of ctest. The forms are those of
# GoogleTest, of Python's unittest (verbosity 2), and of a whole script, which prints `SKIPPED: reason`.

/: Skipped$/ { awaits = 1; reason = ""; next }
awaits && NF { reason = $0; awaits = 0; next }

/^\[  SKIPPED \] [^ ]+ \(/ {
  name = $4
  if (reason == "") {
    reason = $0
    sub(/^[^(]*\(/, "", reason)
    sub(/\)$/, "", reason)
  }
  print name ": " reason
  reason = ""
  next
}

/ \.\.\. skipped ['"]/ {
  name = $1
  reason = $0
  sub(/^.* \.\.\. skipped ['"]/, "", reason)
  sub(/['"]$/, "", reason)
  print name ": " reason
  reason = ""
  next
}

/^SKIPPED: / { print substr($0, 10) }
