# Completion of `flashoverlap` in bash, by what the command's own --help lists.
_flashoverlap() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
  local command=("${COMP_WORDS[0]}") help word line
  local option='^ +(-h,)?(--[a-z-]+)' subcommand='^  ([a-z][a-z_]*)  ' names='(NAME|OPERATION)[^ ]*  .*: ([a-z0-9_, ]+)$'
  COMPREPLY=()

  # A description that did not fit next to its option is on a line of its own.
  _flashoverlap_help() {
    help=$("${command[@]}" --help 2>/dev/null) || return
    help=${help//$'\n'                              /  }
  }
  _flashoverlap_help
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    if [[ $word =~ ^[a-z_]+$ && $help == *$'\n'"  $word  "* ]]; then
      command+=("$word")
      _flashoverlap_help
    fi
  done

  local words=() operations=()
  while IFS= read -r line; do
    if [[ $line =~ $option ]]; then
      words+=("${BASH_REMATCH[2]}")
      [[ ${BASH_REMATCH[2]} == "$previous" ]] || continue
      [[ $line == *"$previous "[A-Z]* ]] || continue  # a flag
      words=()
      [[ $line =~ $names ]] && words=(${BASH_REMATCH[2]//,/})
      operations=()
      break
    elif [[ $line =~ $subcommand ]]; then
      words+=("${BASH_REMATCH[1]}")
    elif [[ $line == *OPERATION* && $line =~ $names ]]; then
      operations=(${BASH_REMATCH[2]//,/})
    fi
  done <<<"$help"
  COMPREPLY=($(compgen -W "${words[*]} ${operations[*]}" -- "$current"))
}
complete -o default -F _flashoverlap flashoverlap
