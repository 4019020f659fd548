package pathplan

// privateNames are what L8b hides in a home unless a rule names it: keys and
// tokens, browsers, keyrings, and what runs at the next login.
func privateNames() []string {
	return []string{
		// keys and tokens
		".ssh", ".gnupg", ".aws", ".kube", ".docker", ".netrc", ".git-credentials",
		// browsers and mail
		".mozilla", ".librewolf", ".thunderbird", ".config/google-chrome", ".config/chromium",
		".config/BraveSoftware", ".config/microsoft-edge", ".config/vivaldi", ".config/opera",
		".var/app/org.mozilla.firefox", ".var/app/com.google.Chrome", ".var/app/org.chromium.Chromium",
		"snap/firefox", "snap/chromium",
		// keyrings
		".local/share/keyrings", ".local/share/kwalletd", ".password-store",
		// shell start files
		".profile", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".zshrc",
		".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".mkshrc", ".cshrc", ".tcshrc", ".login",
		".logout", ".config/fish", ".pam_environment", ".config/environment.d",
		// autostart
		".config/autostart", ".config/systemd", ".local/share/systemd", ".config/plasma-workspace",
		".xinitrc", ".xprofile", ".xsession", ".xsessionrc",
	}
}
