# completion_zsh.zsh SCRIPT LINE: prints the words that zsh offers when tab is pressed after LINE, one a line.
# A second, interactive zsh on a pseudo-terminal completes; its compadd tells what it was given.
zmodload zsh/zpty || exit 3
zpty inner zsh -f -i
zpty -w inner "SCRIPT=${(q)1}"
zpty -w inner 'PROMPT= PS2= RPROMPT=; unsetopt zle_bracketed_paste 2>/dev/null; stty -echo
autoload -Uz compinit && compinit -u -D && source $SCRIPT
compadd() {
  if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then builtin compadd "$@"; return $?; fi
  typeset -a hits; builtin compadd -A hits "$@"
  for hit in $hits; do print -r -- "<HIT>$hit"; done
  builtin compadd "$@"
}
finish() { print "<END>" }
complete-and-tell() { zle complete-word; print "<END>"; zle -I }
zle -N complete-and-tell; bindkey "^I" complete-and-tell; print "<READY>"'
typeset output part
until [[ $output == *$'\n'"<READY>"* ]]; do zpty -r inner part || exit 3; output+=$part; done
zpty -n -w inner "$2"$'\t'
output=
until [[ $output == *"<END>"* ]]; do zpty -r inner part || exit 3; output+=$part; done
zpty -d inner
print -r -- $output | tr -d '\r' | sed -n 's/.*<HIT>//p'
