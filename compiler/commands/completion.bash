_xpc() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} command=${{COMP_WORDS[1]}}
  COMPREPLY=()
  if [ "$COMP_CWORD" = 1 ]; then
    COMPREPLY=($(compgen -W "{commands} --help --version" -- "$word"))
  elif [ "$before" = --format ]; then
    COMPREPLY=($(compgen -W "$(xpc "$command" --help 2>/dev/null | {formats})" -- "$word"))
  elif [ "$command" = list ] && [ "$COMP_CWORD" = 2 ]; then
    COMPREPLY=($(compgen -W "{kinds}" -- "$word"))
  elif [ "$command" = completion ]; then
    COMPREPLY=($(compgen -W "{shells}" -- "$word"))
  elif [ "$before" = --from ]; then
    COMPREPLY=($(compgen -W "$({recipes})" -- "$word") $(compgen -f -X '!*.xp' -- "$word"))
  elif [[ $word == -* ]]; then
    COMPREPLY=($(compgen -W "$(xpc "$command" --help 2>/dev/null | grep -o -- '--[a-z-]*' | sort -u)" -- "$word"))
  else
    COMPREPLY=($(compgen -f -X '!*.xp' -- "$word") $(compgen -d -- "$word"))
  fi
}}
complete -o filenames -F _xpc xpc
